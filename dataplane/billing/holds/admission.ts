/**
 * Lines of requests that wait while others hold all of their organization's credit, or all that is left of a limit of their key
 * or project (design.md §5): in each, first come, first served, at most 2 s per request. While there is no room only the first
 * of a line asks Redis again, so a crowd costs no more than one request does. Each request that finds room lets two ask in its
 * place: one at a time would never clear the line where requests come faster than Redis answers calls.
 */
import type { Reply } from "./shard.ts";

const USUAL_WAIT_MS = 2_000;
/** Pause between two tries of the first in line; a hold that ends in this process ends it at once. */
const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 100;
/** Most requests in a line; a further one gets `busy` at once. */
const LONGEST_LINE = 1_000;
/** Most requests of a line that ask at once. A script call takes 256 operations: the rest is for requests without a line. */
const MOST_AT_ONCE = 64;

interface Visitor {
  readonly attempt: () => Promise<Reply>;
  /** Number of arrival, over all lines. */
  readonly ticket: number;
  /** `performance.now()` milliseconds; the later the larger the ticket. */
  readonly deadline: number;
  /** Name of the line for the organization's credit. */
  readonly organizationId: string;
  /** Whether it asked after its time was up. */
  isOver: boolean;
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: unknown) => void;
}

/** The line that a `busy` reply is about: of the scope that it names, or of the organization. */
const lineOf = (reply: Reply, organizationId: string): string => reply[1] || organizationId;

/** Outcome of one try: answered, failed, or `busy`, to wait on in this line or (`moved`) in another. */
type Outcome = "answered" | "failed" | "busy" | "moved";

interface Line {
  /** Requests that wait for their turn, in the order of their tickets. */
  readonly visitors: Visitor[];
  /** Requests that are asking now. */
  asking: number;
  /** Requests that may ask at a time. */
  atOnce: number;
  /** Pause from the last `busy` until the first asks again; 0: there was room. */
  pauseMs: number;
  /** `performance.now()` of the last `busy`. */
  toldAt: number;
  /** Grows when there is no room: outcomes of tries that began in an earlier round no longer count. */
  round: number;
  /** Outcomes of this round that `learn` has not used yet. */
  outcomes: Outcome[];
  /** Whether something became free since the last request began to ask. */
  freed: boolean;
  timer: NodeJS.Timeout | undefined;
  /** Whether a look at the line is due at the end of this turn of the event loop. */
  isLookedAt: boolean;
}

export class Admission {
  readonly #lines = new Map<string, Line>();
  readonly #waitMs: number;
  #tickets = 0;

  constructor(waitMs = USUAL_WAIT_MS) {
    this.#waitMs = waitMs;
  }

  /** Whether there is any line: mostly there is none. */
  get hasLines(): boolean {
    return this.#lines.size > 0;
  }

  hasLine(name: string): boolean {
    return this.#lines.has(name);
  }

  /**
   * Tries until the reply is something else than `busy`, or the time is up (then `busy`). `name`: the line to wait in if there
   * is one; a reply may lead to another.
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
      const ticket = (this.#tickets += 1);
      this.#join(own, { attempt, ticket, deadline, organizationId, isOver: false, resolve, reject });
    });
  }

  /** Something that this line waits for became free. */
  freed(name: string): void {
    const line = this.#lines.get(name);
    if (line === undefined) return;
    line.freed = true;
    this.#lookSoon(name, line);
  }

  #join(name: string, visitor: Visitor): void {
    let line = this.#lines.get(name);
    if (line === undefined) {
      line = newLine();
      this.#lines.set(name, line);
    } else if (line.visitors.length + line.asking >= LONGEST_LINE)
      return visitor.resolve(busyIn(name, visitor));
    takePlace(line, visitor);
    this.#lookSoon(name, line);
  }

  /** Looks at the line at the end of this turn of the event loop, as many replies arrive in one turn. */
  #lookSoon(name: string, line: Line): void {
    if (line.isLookedAt) return;
    line.isLookedAt = true;
    process.nextTick(() => {
      line.isLookedAt = false;
      this.#look(name, line);
    });
  }

  /** Lets requests ask, as many as may. The first whose time is up has a last try, if no other answer is awaited. */
  #look(name: string, line: Line): void {
    clearTimeout(line.timer);
    learn(line);
    const { visitors } = line;
    const now = performance.now();
    const isFree = () => line.asking < line.atOnce && visitors.length > 0;
    if (isFree() && isOverdue(visitors[0], now) && visitors[0]?.isOver === false)
      this.#askNext(name, line, now);
    while (isOverdue(visitors[0], now)) {
      const over = visitors.shift();
      over?.resolve(busyIn(name, over));
    }
    const pauseMs = line.pauseMs === 0 ? 0 : line.toldAt + line.pauseMs - now;
    if (line.freed || pauseMs <= 0) while (isFree()) this.#askNext(name, line, now);
    const [first] = visitors;
    if (first !== undefined) {
      const leftMs = first.deadline - now;
      // Requests that join meanwhile do not delay this.
      const waitMs = isFree() ? Math.min(pauseMs, leftMs) : leftMs;
      line.timer = setTimeout(() => this.#look(name, line), Math.ceil(waitMs));
    } else if (line.asking === 0) this.#lines.delete(name);
  }

  /** Lets the first of the line ask. */
  #askNext(name: string, line: Line, now: number): void {
    const visitor = line.visitors.shift();
    if (visitor === undefined) return;
    visitor.isOver = isOverdue(visitor, now);
    const { round } = line;
    const end = (outcome: Outcome): void => {
      line.asking -= 1;
      if (outcome === "busy") line.toldAt = performance.now();
      if (round === line.round) line.outcomes.push(outcome);
      this.#lookSoon(name, line);
    };
    line.asking += 1;
    line.freed = false;
    visitor.attempt().then(
      (reply) => {
        const busy = reply[0] === "busy" ? lineOf(reply, visitor.organizationId) : null;
        if (busy === null) visitor.resolve(reply);
        else if (busy === name) takePlace(line, visitor);
        else this.#join(busy, visitor);
        end(busy === null ? "answered" : busy === name ? "busy" : "moved");
      },
      (error: unknown) => {
        visitor.reject(error);
        end("failed");
      },
    );
  }
}

const newLine = (): Line => ({
  visitors: [],
  asking: 0,
  atOnce: 1,
  pauseMs: FIRST_PAUSE_MS,
  toldAt: performance.now(),
  round: 0,
  outcomes: [],
  freed: false,
  timer: undefined,
  isLookedAt: false,
});

/** Inserts a request before later ones: it may come from another line, or have asked in vain. */
function takePlace({ visitors }: Line, visitor: Visitor): void {
  const place = visitors.findLastIndex(({ ticket }) => ticket < visitor.ticket);
  visitors.splice(place + 1, 0, visitor);
}

/** Sets how many may ask next, and when. */
function learn(line: Line): void {
  const { outcomes } = line;
  if (outcomes.length === 0) return;
  line.outcomes = [];
  if (outcomes.includes("busy")) {
    line.round += 1;
    line.atOnce = 1;
    line.pauseMs = line.pauseMs === 0 ? FIRST_PAUSE_MS : Math.min(2 * line.pauseMs, LONGEST_PAUSE_MS);
    return;
  }
  line.pauseMs = 0;
  // A store that fails is asked by no more than before.
  if (!outcomes.includes("failed")) line.atOnce = Math.min(line.atOnce + outcomes.length, MOST_AT_ONCE);
}

/** Deadlines stand in the order of the line, so nobody behind the first runs out of time before it does. */
const isOverdue = (visitor: Visitor | undefined, now: number): boolean =>
  visitor !== undefined && now >= visitor.deadline;

const busyIn = (name: string, { organizationId }: Visitor): Reply =>
  name === organizationId ? ["busy", ""] : ["busy", name];
