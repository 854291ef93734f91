/**
 * How many output tokens the answers of a route usually have, for organizations that hold no more than that (rule 9.7). Each
 * process learns it from its own answers. A process that has seen none holds `LEAST_TOKENS`.
 */
import type { FinalUsage } from "../billing/meter.ts";
import type { OrganizationEntry, Route } from "../config/schema.ts";
import { SharedCache } from "../lib/shared-cache.ts";

/** Fewest tokens that are held, unless the request's own limit is lower. */
const LEAST_TOKENS = 1_024;
/** Answers that are remembered of a route, and new ones after which the usual output is computed again. */
const REMEMBERED = 256;
const LOOKED_AT_EACH = 16;
const MOST_ROUTES = 5_000;

interface Seen {
  /** A ring of output tokens; `count`: how many were ever put into it. */
  readonly tokens: Float64Array;
  count: number;
  usual: number;
  lookedAt: number;
}

export class TypicalOutput {
  /** Owned by namespaces: one with very many routes must not make what those of others usually have forgotten. */
  readonly #routes = new SharedCache<Seen>(MOST_ROUTES);

  /** Remembers an answer that went well; its choices share the tokens. */
  learn({ source }: Pick<Route, "source">, settled: FinalUsage | null, choices: number): void {
    if (settled === null || settled.status !== "ok") return;
    let seen = this.#routes.get(source.uid);
    if (seen === undefined) {
      seen = { tokens: new Float64Array(REMEMBERED), count: 0, usual: 0, lookedAt: 0 };
      this.#routes.set(source.namespace, source.uid, seen);
    }
    for (const { output } of settled.calls ?? [settled.tokens]) {
      seen.tokens[seen.count % REMEMBERED] = output / choices;
      seen.count += 1;
    }
  }

  /** Returns the tokens held for an output limit: all of it, unless `hold` is typical. */
  held(
    organization: OrganizationEntry | undefined,
    { source }: Pick<Route, "source">,
    limit: number,
  ): number {
    if (organization?.hold !== "typical") return limit;
    const seen = this.#routes.get(source.uid);
    return Math.min(limit, Math.max(LEAST_TOKENS, seen === undefined ? 0 : usualOf(seen)));
  }
}

/** Returns the 95th percentile. */
function usualOf(seen: Seen): number {
  const { count, lookedAt } = seen;
  if (lookedAt === 0 || count - lookedAt >= LOOKED_AT_EACH || count < LOOKED_AT_EACH) {
    const known = seen.tokens.slice(0, Math.min(count, REMEMBERED)).sort();
    seen.usual = Math.ceil(known[Math.ceil(known.length * 0.95) - 1] ?? 0);
    seen.lookedAt = count;
  }
  return seen.usual;
}
