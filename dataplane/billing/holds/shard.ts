/**
 * One shard of the meter in Redis: operations gather and go as one script call (group commit, design.md §5). An
 * idle gateway pays one round trip for an operation; while a call is under way the next operations gather.
 */
import type { RedisStore } from "../../store/redis-servers.ts";
import { loadScript } from "../../store/redis.ts";
import { ForeignLedger, foreignText, ledgerOf, type LedgerId } from "../ledger/ledger-identity.ts";
import { BEFORE_ALL, isUpTo, type StreamPosition } from "./stream-position.ts";

/** Sixteen, fixed: an organization's shard must be the same in every pod of every release. */
export const SHARDS = 16;

/** How long Redis may take for an operation that no request waits for; else `REDIS_MS` (shards.ts). */
export const SCRIPT_MS = 2_000;

/** One operation of the `store/meter-*.lua` files: its name and arguments, packed by `operation` (meter-apply.lua). */
export type MeterOperation = string & { readonly [packed]: true };
declare const packed: unique symbol;
/** Its reply: a word and its values. */
export type Reply = readonly string[];

/** Redis did not answer in time, is not connected, or refused an operation. */
export class RedisSilent extends Error {
  override readonly name = "RedisSilent";
  /** The operation may or may not have happened; false: it never left this process. */
  readonly sent: boolean;

  constructor(message: string, { sent, cause }: { readonly sent: boolean; readonly cause?: unknown }) {
    super(message, { cause });
    this.sent = sent;
  }
}

/** Operations of one script call: bounds the time that it keeps Redis from everything else (about 5 ms). */
export const MAX_GROUP = 256;
/** Operations waiting for a shard; more can only mean that Redis is stuck. */
const MAX_QUEUED = 50_000;

const parts = [
  "shard",
  "scopes",
  "requests",
  "limits",
  "account",
  "hold",
  "free",
  "advance",
  "spend",
  "settle",
  "release",
  "heartbeat",
  "sweep",
  "drained",
  "lead",
  "apply",
];
const apply = loadScript(
  parts.map((part) => new URL(`../../store/meter-${part}.lua`, import.meta.url)),
  readReply,
);

type ScriptReply =
  | { readonly applied: readonly Reply[]; readonly newest: StreamPosition | null }
  | { readonly epoch: string }
  | { readonly foreign: LedgerId };

/** Between the words of a reply, and of a charge in the stream. */
export const BETWEEN_WORDS = "\x1f";
/** Between the replies of a call, and the charges of an entry. */
export const BETWEEN_RECORDS = "\x1e";

/**
 * A call's operations go as one argument, as ioredis spends more on each argument than on a kilobyte of it. No word holds a
 * control character: ids are our own, `shardOf` refuses such an organization, and `encodeRow` writes none.
 */
export function operation(name: string, ...args: readonly string[]): MeterOperation {
  const words = args.length === 0 ? "" : `${args.join("\0")}\0`;
  return `${name}\0${args.length}\0${words}` as MeterOperation;
}

/** `{1, replies, newest entry}`, or `{0, epoch}`, or `{2, ledger}`. */
function readReply(reply: unknown): ScriptReply {
  if (!Array.isArray(reply)) throw new TypeError("the meter script answered with something else");
  const [applied, rest, newest = ""] = reply as [number, string, string?];
  if (applied === 0) return { epoch: rest };
  if (applied === 2) return { foreign: rest };
  const replies = rest.split(BETWEEN_RECORDS).map((words) => words.split(BETWEEN_WORDS));
  return { applied: replies, newest: newest === "" ? null : newest };
}

interface Waiting {
  readonly operation: MeterOperation;
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: Error) => void;
  /** `performance.now()` from which on nobody waits any more. */
  readonly deadline: number;
}

export interface ShardOptions {
  readonly redis: RedisStore;
  /** 0 … SHARDS − 1. */
  readonly index: number;
  readonly ledger: LedgerId;
  /** Makes the random word of a new epoch. */
  readonly newEpoch: () => string;
  /** Operations to repeat, in this order, when Redis turns out to have lost what it knew. */
  readonly onLost: (shard: number) => readonly MeterOperation[];
  /** Called when all are repeated; no charge of them comes after this entry of the stream. */
  readonly onRestored: (shard: number, newest: StreamPosition) => void;
}

export class Shard {
  /** Hash tag; the first key of every script call. */
  readonly tag: string;
  readonly #options: ShardOptions;
  #queue: Waiting[] = [];
  /** The group that Redis has not answered yet. */
  #underWay: readonly Waiting[] = [];
  /** One timer for all waiting operations, set to the earliest deadline. */
  #alarm: NodeJS.Timeout | undefined;
  #alarmAt = Number.POSITIVE_INFINITY;
  #epoch = "";
  /** The youngest entry of the stream that a call of ours wrote or met. */
  #newest: StreamPosition = BEFORE_ALL;
  /** The other ledger that this Redis belongs to. */
  #foreign: LedgerId | null = null;
  #lost = false;
  #scheduled = false;
  #busy = false;
  #restoring = false;

  constructor(options: ShardOptions) {
    this.#options = options;
    this.tag = shardTag(options.index);
  }

  /**
   * Runs one operation together with all others that gather.
   * @throws RedisSilent when there is no answer within `timeoutMs`, or a refusal.
   */
  run(operation: MeterOperation, timeoutMs: number): Promise<Reply> {
    return new Promise((resolve, reject) => {
      if (this.#queue.length >= MAX_QUEUED) {
        reject(new RedisSilent("too many operations are waiting for Redis", { sent: false }));
        return;
      }
      const deadline = performance.now() + timeoutMs;
      this.#queue.push({ operation, resolve, reject, deadline });
      if (deadline < this.#alarmAt) this.#ringAt(deadline);
      this.#schedule();
    });
  }

  /** Repeats everything recent: Redis may have lost writes (another server answers, or it was restarted). */
  lost(): void {
    this.#lost = true;
    this.#schedule();
  }

  /** The other ledger that this shard was last seen to belong to; null: it is ours. */
  get foreign(): LedgerId | null {
    return this.#foreign;
  }

  /** No charge that Redis took from this process comes after this entry of the stream. */
  get newest(): StreamPosition {
    return this.#newest;
  }

  /**
   * Takes the epoch that Redis was seen in, if any. Returns whether the charges of this process are in it: otherwise they are
   * made again, even when no operation is waiting.
   */
  sawEpoch(epoch: string | null): boolean {
    const ledger = ledgerOf(epoch);
    this.#foreign = ledger === this.#options.ledger ? null : ledger;
    // It may become ours again.
    if (this.#foreign !== null) return false;
    if (epoch === this.#epoch && !this.#lost && !this.#restoring) return true;
    // At first contact there is nothing of ours that could be lost.
    if (this.#epoch !== "" && epoch !== this.#epoch && !this.#busy) this.lost();
    return false;
  }

  #ringAt(deadline: number): void {
    clearTimeout(this.#alarm);
    this.#alarmAt = deadline;
    this.#alarm = setTimeout(() => this.#refuseLate(), Math.max(0, deadline - performance.now()));
  }

  /** Refuses late operations; one not sent by its deadline never is. */
  #refuseLate(): void {
    const now = performance.now();
    const isLate = ({ deadline }: Waiting) => deadline <= now;
    const error = (sent: boolean) => new RedisSilent("no answer from Redis in time", { sent });
    this.#refuse(this.#queue.filter(isLate), error(false));
    this.#refuse(this.#underWay.filter(isLate), error(true));
    this.#queue = this.#queue.filter((waiting) => !isLate(waiting));
    this.#underWay = this.#underWay.filter((waiting) => !isLate(waiting));
    this.#alarmAt = Number.POSITIVE_INFINITY;
    let first = Number.POSITIVE_INFINITY;
    for (const { deadline } of this.#queue) first = Math.min(first, deadline);
    for (const { deadline } of this.#underWay) first = Math.min(first, deadline);
    if (first < this.#alarmAt) this.#ringAt(first);
  }

  #schedule(): void {
    if (this.#scheduled || this.#busy) return;
    this.#scheduled = true;
    // After the I/O of this turn of the event loop, so that all of its requests go together.
    setImmediate(() => {
      this.#scheduled = false;
      this.#drainQueue().catch((cause: unknown) => {
        // Operations that wait here must not wait for ever.
        this.#refuse(this.#queue.splice(0), new RedisSilent("the meter failed", { sent: false, cause }));
      });
    });
  }

  async #drainQueue(): Promise<void> {
    this.#busy = true;
    try {
      while (this.#queue.length > 0 || this.#lost) {
        if (this.#lost && !(await this.#repeat())) {
          this.#refuse(
            this.#queue.splice(0),
            new RedisSilent("Redis went away while its state was restored", { sent: false }),
          );
          break;
        }
        const group = this.#queue.splice(0, MAX_GROUP);
        if (group.length > 0) await this.#send(group);
      }
    } finally {
      this.#busy = false;
    }
  }

  /** Charges and holds again what Redis lost. False: it could not be done now. */
  async #repeat(): Promise<boolean> {
    // Cleared first: a further loss on the way sets it again.
    this.#lost = false;
    this.#restoring = true;
    // Entry ids of before mean nothing in the new stream.
    this.#newest = BEFORE_ALL;
    const operations = this.#options.onLost(this.#options.index);
    // Nothing of ours can be lost any more: the next call begins as the first one did.
    if (operations.length === 0) this.#epoch = "";
    for (let at = 0; at < operations.length; at += MAX_GROUP) {
      try {
        const reply = await this.#call(operations.slice(at, at + MAX_GROUP));
        if ("applied" in reply) {
          if (reply.applied.some(([word]) => word === "error")) throw new Error("something was not restored");
          continue;
        }
        this.#epoch = reply.epoch;
        this.#newest = BEFORE_ALL;
        at = -MAX_GROUP;
      } catch {
        this.#lost = true;
        this.#restoring = false;
        return false;
      }
    }
    this.#restoring = false;
    this.#options.onRestored(this.#options.index, this.#newest);
    return true;
  }

  async #send(group: readonly Waiting[]): Promise<void> {
    if (this.#options.redis.status !== "ready") {
      this.#refuse(group, new RedisSilent("Redis is not connected", { sent: false }));
      return;
    }
    this.#underWay = group;
    try {
      const reply = await this.#call(group.map(({ operation }) => operation));
      if ("epoch" in reply) {
        // Nothing was done. At first contact there is nothing of ours that could be lost.
        this.#lost ||= this.#epoch !== "";
        this.#epoch = reply.epoch;
        this.#newest = BEFORE_ALL;
        this.#queue.unshift(...this.#underWay);
        return;
      }
      group.forEach((waiting, index) => answer(waiting, reply.applied[index] ?? []));
    } catch (error) {
      const sent = !(error instanceof ForeignLedger);
      this.#refuse(group, new RedisSilent("Redis did not answer", { sent, cause: error }));
    } finally {
      this.#underWay = [];
    }
  }

  /** @throws ForeignLedger, and what ioredis throws. */
  async #call(
    operations: readonly MeterOperation[],
  ): Promise<Exclude<ScriptReply, { readonly foreign: LedgerId }>> {
    const packed = operations.join("");
    const { redis, ledger, newEpoch } = this.#options;
    const args = [this.#epoch, `${ledger}.${newEpoch()}`, packed];
    const reply = await apply(redis, [this.tag], args);
    this.#foreign = "foreign" in reply ? reply.foreign : null;
    if ("foreign" in reply) throw new ForeignLedger(foreignText(reply.foreign, ledger));
    if ("applied" in reply && reply.newest !== null && reply.newest !== this.#newest)
      this.#newest = isUpTo(this.#newest, reply.newest) ? reply.newest : this.#newest;
    return reply;
  }

  #refuse(group: readonly Waiting[], error: RedisSilent): void {
    for (const waiting of group) waiting.reject(error);
  }
}

function answer({ resolve, reject }: Waiting, reply: Reply): void {
  if (reply[0] !== "error") return resolve(reply);
  reject(new RedisSilent("Redis refused an operation", { sent: true, cause: new Error(reply[1]) }));
}

/** Suffixes that spread the tags evenly in the slots of a cluster, one in each sixteenth, however many masters share them. */
const SPREAD = [0, 3, 11, 108, 41, 59, 61, 79, 11, 142, 21, 39, 13, 18, 2, 1];

/** Hash tag of a shard: all its keys begin with it. */
export function shardTag(index: number): string {
  return `{gapura-meter-${index}-${SPREAD[index]}}`;
}

/** Keys of the shards' epochs: without an epoch, or under another one, nothing is done (meter-apply.lua). */
export const epochKeys: readonly string[] = Array.from(
  { length: SHARDS },
  (_, index) => `${shardTag(index)}:epoch`,
);

/**
 * The shard that holds everything of an organization: FNV-1a, stable over pods and releases.
 * @throws RangeError for a name with a control character, which a packed operation could not hold.
 */
export function shardOf(organizationId: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < organizationId.length; at += 1) {
    const character = organizationId.charCodeAt(at);
    if (character < 0x20) throw new RangeError("an organization's id holds a control character");
    hash = Math.imul(hash ^ character, 0x01000193);
  }
  return (hash >>> 0) % SHARDS;
}
