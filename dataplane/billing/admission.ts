/**
 * The lines in which requests stand while other requests hold all of their organization's credit, or all that is left of a
 * limit of their key or project (design.md §5): in each, first come, first served, at most 2 s each. While there is no room only
 * the first of a line asks Redis again, so a crowd costs no more than one request does. Where all that asked found room twice as
 * many ask next: else a line that takes one at a time would never end again while more come than Redis answers calls.
 */
import type { Reply } from "./shard.ts";

const USUAL_WAIT_MS = 2_000;
/** Between two tries of the first in line; a hold that ends in this process wakes it at once. */
const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 100;
/** Whoever comes later is told at once that it is busy. */
const LONGEST_LINE = 1_000;
/** A call of the script takes 256 operations: the rest is for others of the shard, who stand in no line. */
const MOST_AT_ONCE = 64;

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

/** What became of one that asked: it has its answer, none could be had, or it is to wait, in the line of that name. */
type Outcome = "answered" | "failed" | { readonly busy: string };

interface Line {
  readonly visitors: Visitor[];
  /** So many of the first are asking. */
  asking: number;
  /** Something became free since the last of them began to ask. */
  freed: boolean;
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
    const line = this.#lines.get(name);
    if (line === undefined) return;
    line.freed = true;
    line.wake();
  }

  #join(name: string, visitor: Visitor): void {
    const line = this.#lines.get(name);
    if (line === undefined) {
      const opened: Line = { visitors: [visitor], asking: 0, freed: false, wake: () => {} };
      this.#lines.set(name, opened);
      this.#serve(name, opened).catch((error: unknown) => {
        this.#lines.delete(name);
        for (const { reject } of opened.visitors) reject(error);
      });
      return;
    }
    const { visitors } = line;
    if (visitors.length >= LONGEST_LINE) return visitor.resolve(busyIn(name, visitor));
    // By their deadlines, as one may come from another line; behind those that are asking.
    const place = visitors.findLastIndex(({ deadline }) => deadline <= visitor.deadline);
    visitors.splice(Math.max(line.asking, place + 1), 0, visitor);
  }

  async #serve(name: string, line: Line): Promise<void> {
    const { visitors } = line;
    let pauseMs = FIRST_PAUSE_MS;
    let atOnce = 1;
    for (let [first] = visitors; first !== undefined; [first] = visitors) {
      // Deadlines stand in the order of the line, so nobody behind the first runs out of time before it does.
      if (performance.now() >= first.deadline) {
        visitors.shift();
        first.resolve(busyIn(name, first));
        continue;
      }
      if (!line.freed) await wait(line, Math.min(pauseMs, first.deadline - performance.now()));
      line.freed = false;
      const outcomes = await this.#ask(name, line, atOnce);
      if (outcomes.some((outcome) => typeof outcome === "object" && outcome.busy === name)) {
        atOnce = 1;
        pauseMs = pauseMs === 0 ? FIRST_PAUSE_MS : Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
      } else {
        pauseMs = 0;
        // A store that fails is asked by no more than before.
        if (!outcomes.includes("failed")) atOnce = Math.min(2 * atOnce, MOST_AT_ONCE);
      }
    }
    this.#lines.delete(name);
  }

  /** Lets so many of the first ask. Who finds no room stays in line. */
  async #ask(name: string, line: Line, atOnce: number): Promise<readonly Outcome[]> {
    const { visitors } = line;
    const asking = visitors.slice(0, atOnce);
    line.asking = asking.length;
    const outcomes = await Promise.all(asking.map(askOne));
    const still: Visitor[] = [];
    for (const [index, visitor] of asking.entries()) {
      const outcome = outcomes[index];
      if (typeof outcome !== "object") continue;
      if (outcome.busy === name) still.push(visitor);
      else this.#join(outcome.busy, visitor);
    }
    visitors.splice(0, line.asking, ...still);
    line.asking = 0;
    // Also those who came from another line meanwhile, and had to stand behind the ones that asked.
    visitors.sort((one, other) => one.deadline - other.deadline);
    return outcomes;
  }
}

/** Who has an answer hears it at once, however long others of the same moment wait for theirs. */
async function askOne(visitor: Visitor): Promise<Outcome> {
  try {
    const reply = await visitor.attempt();
    if (reply[0] === "busy") return { busy: lineOf(reply, visitor.organizationId) };
    visitor.resolve(reply);
    return "answered";
  } catch (error) {
    visitor.reject(error);
    return "failed";
  }
}

const busyIn = (name: string, { organizationId }: Visitor): Reply =>
  name === organizationId ? ["busy", ""] : ["busy", name];

/** Until something is freed, or for that long. */
async function wait(line: Line, ms: number): Promise<void> {
  if (ms <= 0) return;
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms);
    line.wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}
