/**
 * The lines in which requests stand while other requests hold all of their organization's credit, or all that is left of a
 * limit of their key or project (design.md §5): in each, first come, first served, at most 2 s each. Only the first of a line asks Redis again, so a crowd costs no more
 * than one request does.
 */
import type { Reply } from "./shard.ts";

const USUAL_WAIT_MS = 2_000;
/** Between two tries of the first in line; a hold that ends in this process wakes it at once. */
const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 100;
/** Longer lines could not be served in 2 s. */
const LONGEST_LINE = 1_000;

interface Visitor {
  readonly attempt: () => Promise<Reply>;
  /** `performance.now()` milliseconds. */
  readonly deadline: number;
  /** Where one belongs whom nothing but the organization's credit keeps waiting. */
  readonly organizationId: string;
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: unknown) => void;
}

/** The line that a `busy` reply is about: of the scope that it names, or of the organization. */
const lineOf = (reply: Reply, organizationId: string): string => reply[1] || organizationId;

interface Line {
  readonly visitors: Visitor[];
  wake: () => void;
}

export class Admission {
  readonly #lines = new Map<string, Line>();
  readonly #waitMs: number;

  constructor(waitMs = USUAL_WAIT_MS) {
    this.#waitMs = waitMs;
  }

  /** Whether anybody stands in any line: mostly nobody does. */
  get hasLines(): boolean {
    return this.#lines.size > 0;
  }

  hasLine(name: string): boolean {
    return this.#lines.has(name);
  }

  /**
   * Tries until the answer is something else than `busy`, or the time is up (then `busy`). `name`: the line to stand in if there
   * is one; what is tried may lead to another.
   */
  async admit(organizationId: string, name: string, attempt: () => Promise<Reply>): Promise<Reply> {
    let own = name;
    if (!this.#lines.has(name)) {
      const reply = await attempt();
      if (reply[0] !== "busy") return reply;
      own = lineOf(reply, organizationId);
    }
    return await new Promise((resolve, reject) => {
      const deadline = performance.now() + this.#waitMs;
      this.#join(own, { attempt, deadline, organizationId, resolve, reject });
    });
  }

  /** Something that this line waits for became free. */
  freed(name: string): void {
    this.#lines.get(name)?.wake();
  }

  #join(name: string, visitor: Visitor): void {
    const line = this.#lines.get(name);
    if (line === undefined) {
      const opened: Line = { visitors: [visitor], wake: () => {} };
      this.#lines.set(name, opened);
      this.#serve(name, opened).catch((error: unknown) => {
        this.#lines.delete(name);
        for (const { reject } of opened.visitors) reject(error);
      });
      return;
    }
    const { visitors } = line;
    if (visitors.length >= LONGEST_LINE) return visitor.resolve(busyIn(name, visitor));
    // By their deadlines, as one may come from another line; behind the first, whose try may be under way.
    const place = visitors.findLastIndex(({ deadline }) => deadline <= visitor.deadline);
    visitors.splice(Math.max(1, place + 1), 0, visitor);
  }

  async #serve(name: string, line: Line): Promise<void> {
    let pauseMs = FIRST_PAUSE_MS;
    for (let first = line.visitors[0]; first !== undefined; first = line.visitors[0]) {
      // Deadlines stand in the order of the line, so nobody behind the first runs out of time before it does.
      if (performance.now() >= first.deadline) {
        line.visitors.shift();
        first.resolve(busyIn(name, first));
        continue;
      }
      await wait(line, Math.min(pauseMs, first.deadline - performance.now()));
      try {
        const reply = await first.attempt();
        if (reply[0] === "busy" && lineOf(reply, first.organizationId) !== name) {
          line.visitors.shift();
          this.#join(lineOf(reply, first.organizationId), first);
          continue;
        }
        if (reply[0] === "busy") {
          pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
          continue;
        }
        first.resolve(reply);
      } catch (error) {
        first.reject(error);
      }
      line.visitors.shift();
      // Where one found room the next may, too.
      pauseMs = 0;
    }
    this.#lines.delete(name);
  }
}

const busyIn = (name: string, { organizationId }: Visitor): Reply =>
  name === organizationId ? ["busy", ""] : ["busy", name];

function wait(line: Line, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    line.wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}
