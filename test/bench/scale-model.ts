/** The model of growth (docs/decisions/scale.md): what each part needs for a load, from what a request costs it. */

/** The meter's parts, each of which lies in one master of a cluster. */
const SHARDS = 16;
/** Rounds of drainers a second, when each of them finds something (`usualRhythm.drainMs`). */
export const ROUNDS_PER_SECOND = SHARDS / 0.25;
const ROWS = 1e6;

/** What `npm run bench -- scale` measures. Microseconds are of CPU. */
export interface Costs {
  /** Of data planes, a request, with the draining of its charge. */
  readonly planeMicros: number;
  /** Of Redis, a request: without its script calls, and each of these. */
  readonly redis: Line;
  /** Of Postgres, a row, and each round of a drainer that brings rows. */
  readonly postgres: Line;
  /** Written ahead by Postgres, a request. */
  readonly walBytes: number;
  /** Of each data plane that has nothing to do, a second. */
  readonly idle: {
    readonly planeMicros: number;
    readonly redisMicros: number;
    readonly postgresMicros: number;
  };
}

/** A cost with a part that each request has, and one of what many requests may share: a script call, a drainer's round. */
export interface Line {
  readonly ownMicros: number;
  readonly sharedMicros: number;
}

/** Measured at one width of load. */
export interface Point {
  /** Calls, or rounds, a request. */
  readonly shared: number;
  readonly micros: number;
}

/** The line through two points; noise takes neither part below 0. @throws Error when they share as much. */
export function fitLine(one: Point, other: Point): Line {
  const by = other.shared - one.shared;
  if (Math.abs(by) < 0.1 * one.shared) throw new Error("both widths share as much: there is no line");
  const sharedMicros = Math.max(0, (other.micros - one.micros) / by);
  return { sharedMicros, ownMicros: Math.max(0, one.micros - sharedMicros * one.shared) };
}

export interface Target {
  readonly pods: number;
  readonly requestsPerSecond: number;
  /** Of a script call, as a data plane sees it. */
  readonly roundTripMs: number;
  /** Rows of usage that are kept, and bytes of them and their sums for a million. */
  readonly usageRows: number;
  readonly bytesPerMillion: number;
}

/** Shares of a core up to which each part is loaded: Redis' one, as it must not queue; the others'. */
export const LOADED = { redis: 0.6, plane: 0.7, postgres: 0.7 } as const;

export interface Demand {
  readonly callsPerRequest: number;
  readonly planeCores: number;
  readonly podsAtLeast: number;
  readonly redisCores: number;
  readonly mastersAtLeast: number;
  /** What sixteen masters can do, the most that help. */
  readonly mostRequestsPerSecond: number;
  readonly postgresCores: number;
  readonly walBytesPerSecond: number;
  readonly usageBytes: number;
  /** For how long that many rows last at this load. */
  readonly usageDays: number;
}

/**
 * Script calls of a request, which has two operations: while a call of a shard is under way the operations of its process gather, and
 * go together as the next one. Of few pods with many requests each a call has many, of many pods with few requests each one.
 */
export function callsPerRequest({ pods, requestsPerSecond, roundTripMs }: Target): number {
  const operationsPerSecond = (2 * requestsPerSecond) / pods / SHARDS;
  return 2 / Math.max(1, (operationsPerSecond * roundTripMs) / 1_000);
}

export function demandOf(costs: Costs, target: Target): Demand {
  const { pods, requestsPerSecond, usageRows, bytesPerMillion } = target;
  const calls = callsPerRequest(target);
  const cores = (micros: number, idleMicros: number) =>
    (requestsPerSecond * micros + pods * idleMicros) / 1e6;
  const redisMicros = costs.redis.ownMicros + costs.redis.sharedMicros * calls;
  const rounds = Math.min(1, ROUNDS_PER_SECOND / requestsPerSecond);
  const postgresMicros = costs.postgres.ownMicros + costs.postgres.sharedMicros * rounds;
  const planeCores = cores(costs.planeMicros, costs.idle.planeMicros);
  const redisCores = cores(redisMicros, costs.idle.redisMicros);
  return {
    callsPerRequest: calls,
    planeCores,
    podsAtLeast: Math.ceil(planeCores / LOADED.plane),
    redisCores,
    mastersAtLeast: Math.ceil(redisCores / LOADED.redis),
    mostRequestsPerSecond: (SHARDS * LOADED.redis * 1e6 - pods * costs.idle.redisMicros) / redisMicros,
    postgresCores: cores(postgresMicros, costs.idle.postgresMicros),
    walBytesPerSecond: requestsPerSecond * costs.walBytes,
    usageBytes: (usageRows / ROWS) * bytesPerMillion,
    usageDays: usageRows / requestsPerSecond / 86_400,
  };
}
