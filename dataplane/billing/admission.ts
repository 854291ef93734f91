/**
 * The line in which requests stand while other requests hold all of their organization's credit (design.md §5):
 * first come, first served, at most 2 s each. Only the first of a line asks Redis again, so a crowd costs no more
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
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: unknown) => void;
}

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

  hasLine(organizationId: string): boolean {
    return this.#lines.has(organizationId);
  }

  /** Tries until the answer is something else than `busy`, or the time is up (then `busy`). */
  async admit(organizationId: string, attempt: () => Promise<Reply>): Promise<Reply> {
    const line = this.#lines.get(organizationId);
    if (line === undefined) {
      const reply = await attempt();
      if (reply[0] !== "busy") return reply;
    } else if (line.visitors.length >= LONGEST_LINE) {
      return ["busy"];
    }
    return await new Promise((resolve, reject) => {
      this.#join(organizationId, { attempt, deadline: performance.now() + this.#waitMs, resolve, reject });
    });
  }

  /** Some credit of the organization became free. */
  freed(organizationId: string): void {
    this.#lines.get(organizationId)?.wake();
  }

  #join(organizationId: string, visitor: Visitor): void {
    const line = this.#lines.get(organizationId);
    if (line !== undefined) {
      line.visitors.push(visitor);
      return;
    }
    const opened: Line = { visitors: [visitor], wake: () => {} };
    this.#lines.set(organizationId, opened);
    this.#serve(organizationId, opened).catch((error: unknown) => {
      this.#lines.delete(organizationId);
      for (const { reject } of opened.visitors) reject(error);
    });
  }

  async #serve(organizationId: string, line: Line): Promise<void> {
    let pauseMs = FIRST_PAUSE_MS;
    for (let first = line.visitors[0]; first !== undefined; first = line.visitors[0]) {
      // Deadlines stand in the order of the line, so nobody behind the first runs out of time before it does.
      if (performance.now() >= first.deadline) {
        line.visitors.shift();
        first.resolve(["busy"]);
        continue;
      }
      await wait(line, Math.min(pauseMs, first.deadline - performance.now()));
      try {
        const reply = await first.attempt();
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
    this.#lines.delete(organizationId);
  }
}

function wait(line: Line, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    line.wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}
