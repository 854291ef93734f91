/**
 * Counts requests, store calls and charges. A series is looked up by its labels once and kept, because the lookup costs
 * more than the count itself. The metrics are declared in metrics.ts.
 */
import { metrics } from "./metrics.ts";
import { countSpend } from "./organization-metrics.ts";
import type { Exemplar, Observations, Tally } from "./tally.ts";

/** Series of one dialect and model. The registry holds the same pairs, so this map grows no further than it does. */
interface RequestMetrics {
  readonly model: string;
  readonly duration: Observations;
  readonly firstByte: Observations;
  readonly overhead: Observations;
  /** By HTTP status. */
  readonly requests: Map<number, Tally>;
}
const requestMetrics = new Map<string, RequestMetrics>();

function requestMetricsOf(dialect: string, model: string): RequestMetrics {
  const key = `${dialect} ${model}`;
  let found = requestMetrics.get(key);
  if (found === undefined) {
    found = {
      model,
      duration: metrics.requestDuration.series({ dialect, model }),
      firstByte: metrics.firstByte.series({ dialect, model }),
      overhead: metrics.overhead.series({ dialect }),
      requests: new Map(),
    };
    requestMetrics.set(key, found);
  }
  return found;
}

/** An answered request. Times are in seconds, from the arrival of its headers. */
export interface Answered {
  readonly dialect: string;
  readonly model: string;
  readonly status: number;
  readonly whole: number;
  /** null: the client left before the first byte. */
  readonly firstByte: number | null;
  /** Time spent waiting for upstreams before the first byte. */
  readonly upstreamWait: number;
  /** null: its trace is not kept. */
  readonly exemplar: Exemplar | null;
}

/** Counts one answered request. */
export function countRequest(answered: Answered): void {
  const { dialect, model, status, whole, firstByte, upstreamWait, exemplar } = answered;
  const of = requestMetricsOf(dialect, model);
  let counter = of.requests.get(status);
  if (counter === undefined) {
    counter = metrics.requests.series({ dialect, model, status: String(status) });
    of.requests.set(status, counter);
  }
  counter.value += 1;
  of.duration.observe(whole, exemplar);
  if (firstByte === null) return;
  of.firstByte.observe(firstByte, exemplar);
  of.overhead.observe(Math.max(0, firstByte - upstreamWait), exemplar);
}

const statements = new Set(["select", "insert", "update", "delete", "with", "begin", "commit", "rollback"]);

/** Records how long a Postgres statement took, by its first word. */
export function countStatement(text: string, seconds: number): void {
  const [, word = ""] = /^\s*(\w+)/.exec(text) ?? [];
  const known = word.toLowerCase();
  const operation = statements.has(known) ? known : "other";
  metrics.storeSeconds.series({ store: "postgres", operation }).observe(seconds);
}

const scriptSeconds = metrics.storeSeconds.series({ store: "redis", operation: "script" });

/** Records how long a Redis script took. */
export function countScript(seconds: number): void {
  scriptSeconds.observe(seconds);
}

/** Counts an upstream call whose reported usage was impossible (rule 7.9). */
export function countImplausible(model: string, upstream: string): void {
  metrics.implausibleUsage.series({ model, upstream }).value += 1;
}

/** Drops the kept series of models whose series the registry has forgotten. */
export function forgetCounts(isGone: (labels: { readonly model: string }) => boolean): void {
  for (const [key, of] of requestMetrics) if (isGone(of)) requestMetrics.delete(key);
  for (const model of chargeMetrics.keys()) if (isGone({ model })) chargeMetrics.delete(model);
}

const tokenKinds = ["input", "cache_read", "cache_write", "output"] as const;
export type TokenKind = (typeof tokenKinds)[number];

interface ChargeMetrics {
  readonly credits: Tally;
  readonly tokens: Readonly<Record<TokenKind, Tally>>;
}
/** By public model id. */
const chargeMetrics = new Map<string, ChargeMetrics>();

function chargeMetricsOf(model: string): ChargeMetrics {
  let found = chargeMetrics.get(model);
  if (found === undefined) {
    const kinds = tokenKinds.map((kind) => [kind, metrics.tokens.series({ model, kind })]);
    found = {
      credits: metrics.credits.series({ model }),
      tokens: Object.fromEntries(kinds) as ChargeMetrics["tokens"],
    };
    chargeMetrics.set(model, found);
  }
  return found;
}

/** Tokens and credits of one charged request. */
export interface CountedCharge {
  readonly organizationId: string;
  readonly model: string;
  /** Micro-credits. */
  readonly micros: number;
  readonly tokens: Readonly<Record<TokenKind, number>>;
}

/** Counts the tokens and credits of one charged request (rule 1.15). */
export function countCharge({ organizationId, model, micros, tokens }: CountedCharge): void {
  const of = chargeMetricsOf(model);
  of.credits.value += micros;
  for (const kind of tokenKinds) of.tokens[kind].value += tokens[kind];
  countSpend(organizationId, micros);
}
