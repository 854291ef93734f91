/** How models answer, judged by the organization's own requests: what a tenant may know of it. */
import type { Request } from "../api/schema.ts";

export interface Health {
  readonly requests: number;
  /** That the model or the service failed; the caller's own mistakes and hang-ups are not. */
  readonly failed: number;
  /** Milliseconds to the first byte that 95 of 100 requests took at most; null: none had one. */
  readonly firstByteP95: number | null;
}
export type HealthWord = "unknown" | "good" | "shaky" | "failing";

const CLIENT_LEFT = 499;
/** From this share of failures on a model is called failing. */
const FAILING = 0.5;

/** What the overview and the list of requests call a failure: also an answer that broke off after its status was sent. */
export const hasFailed = ({ status, error_code: code }: Request): boolean => status >= 400 || code !== null;

/** A 429 of ours calls no model; one that comes after a try is the model's. */
const isModelsFault = (request: Request): boolean =>
  hasFailed(request) &&
  request.status !== CLIENT_LEFT &&
  (request.status >= 500 || request.status < 400 || (request.status === 429 && request.tries.length > 0));

/** By public model id; requests that found no model are nobody's. */
export function healthOf(requests: readonly Request[]): ReadonlyMap<string, Health> {
  const byModel = new Map<string, Request[]>();
  for (const request of requests) {
    if (request.model === null) continue;
    const known = byModel.get(request.model);
    if (known === undefined) byModel.set(request.model, [request]);
    else known.push(request);
  }
  return new Map(
    Array.from(byModel, ([model, of]) => [
      model,
      {
        requests: of.length,
        failed: of.filter(isModelsFault).length,
        firstByteP95: percentile(firstBytes(of), 95),
      },
    ]),
  );
}

export function healthWord(health: Health | undefined): HealthWord {
  if (health === undefined || health.requests === 0) return "unknown";
  if (health.failed === 0) return "good";
  return health.failed >= FAILING * health.requests ? "failing" : "shaky";
}

export const firstBytes = (requests: readonly Request[]): number[] =>
  requests.flatMap(({ first_byte_ms: ms }) => (ms === null ? [] : [ms])).sort((one, other) => one - other);

/** By nearest rank. */
export const percentile = (sorted: readonly number[], percent: number): number | null =>
  sorted[Math.ceil((percent / 100) * sorted.length) - 1] ?? null;
