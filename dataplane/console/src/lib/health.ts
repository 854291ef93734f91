/** Health of models, judged by the organization's own requests alone, as a tenant may know no more. */
import type { Request } from "../api/schema.ts";

export interface Health {
  readonly requests: number;
  /** Requests that the model or the service failed; the caller's own errors and hang-ups do not count. */
  readonly failed: number;
  /** Milliseconds to the first byte that 95 of 100 requests took at most; null: none had one. */
  readonly firstByteP95: number | null;
}
export type HealthWord = "unknown" | "good" | "shaky" | "failing";

const CLIENT_LEFT = 499;
/** Share of failures from which on a model is called failing. */
const FAILING = 0.5;

/**
 * Returns by whom a request failed: a model or the service, or its own caller, who asked for what is refused or left; null: it did
 * not. An answer that broke off after its status was sent has failed too. The gateway's own 429 calls no model; one after a
 * try is the model's.
 */
export function failureOf({ status, error_code: code, tries }: Request): "service" | "caller" | null {
  if (status < 400) return code === null ? null : "service";
  if (status === CLIENT_LEFT) return "caller";
  return status >= 500 || (status === 429 && tries.length > 0) ? "service" : "caller";
}

/** Returns health by public model id; requests that found no model count for none. */
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
        failed: of.filter((request) => failureOf(request) === "service").length,
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

/** Returns a percentile by nearest rank. */
export const percentile = (sorted: readonly number[], percent: number): number | null =>
  sorted[Math.ceil((percent / 100) * sorted.length) - 1] ?? null;
