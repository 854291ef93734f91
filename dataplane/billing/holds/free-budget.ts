/**
 * Budgets of an organization's requests to free endpoints (rule 7.7), over all pods: the buckets are in Redis
 * (store/meter-free.lua). While Redis is silent each process counts for itself, as nothing free needs Redis.
 */
import { LRUCache } from "lru-cache";
import { ApiError } from "../../lib/api-error.ts";
import { TokenBucket } from "../../lib/token-bucket.ts";
import { metrics } from "../../telemetry/metrics.ts";
import type { RateLimits } from "./held-bill.ts";
import type { Payer } from "../meter.ts";
import { limitReached, retryAfter } from "./rate-limits.ts";
import { scopesText } from "../scopes.ts";
import { operation, type Reply } from "./shard.ts";
import { REDIS_MS, type Shards } from "./shards.ts";

const REQUESTS_PER_MINUTE = 6_000;
/** The bucket holds so many, or ten seconds' worth if that is more. */
export const REQUESTS_AT_ONCE = 1_000;
const TEXT_MIB_PER_MINUTE = 64;
const TEXT_PER_MINUTE = TEXT_MIB_PER_MINUTE * 1024 * 1024;
/** For so long after Redis was silent it is not asked. */
const SILENT_MS = 1_000;
const MOST_KNOWN = 10_000;

type Kind = "requests" | "text";

/** `text`: bytes that must be left; `takeText`: whether they are used up now. */
export interface FreeUse {
  readonly requests: 0 | 1;
  readonly text: number;
  readonly takeText: boolean;
}

export class FreeBudget {
  readonly #shards: Shards;
  readonly #limits: (organizationId: string) => RateLimits | undefined;
  /** Until when (`performance.now()`) there are no requests left, so that Redis need not be asked. */
  readonly #usedUp = new LRUCache<string, number>({ max: MOST_KNOWN });
  readonly #own = new LRUCache<string, Readonly<Record<Kind, TokenBucket>>>({ max: MOST_KNOWN });
  #askRedisFrom = Number.NEGATIVE_INFINITY;

  /** `limits`: the organization's, by the present snapshot. */
  constructor(shards: Shards, limits: (organizationId: string) => RateLimits | undefined) {
    this.#shards = shards;
    this.#limits = limits;
  }

  /** @throws ApiError 429 beyond the budget. */
  async take({ organizationId, kind: group }: Payer, use: FreeUse): Promise<void> {
    const perMinute = this.#perMinute(organizationId);
    const size = this.atOnce(organizationId);
    // Admin keys have a budget of their own: the holder of a stolen inference key must not be able to prevent its revocation.
    const name = `${group} ${organizationId}`;
    // A changed limit is another budget: how long the one before is used up says nothing of it.
    const budget = `${name} ${perMinute}`;
    const usedUp = use.requests === 0 ? 0 : (this.#usedUp.get(budget) ?? 0) - performance.now();
    if (usedUp > 0) throw refused("requests", perMinute, usedUp);
    const [kind, waitMs] =
      (await this.#takeInRedis(organizationId, group, perMinute, size, use)) ??
      this.#takeHere(name, perMinute, size, use);
    if (waitMs <= 0) return;
    if (kind === "requests") this.#usedUp.set(budget, performance.now() + waitMs);
    throw refused(kind, perMinute, waitMs);
  }

  /** How many requests of an organization are let through at once. */
  atOnce(organizationId: string): number {
    return Math.max(REQUESTS_AT_ONCE, this.#perMinute(organizationId) / 6);
  }

  #perMinute(organizationId: string): number {
    return Math.max(REQUESTS_PER_MINUTE, this.#limits(organizationId)?.requestsPerMinute ?? 0);
  }

  /** Counts a request towards its key's and project's requests per minute (rule 9.5). @throws ApiError 429 */
  async pace({ organizationId, keyId, limits }: Payer): Promise<void> {
    if (limits.every((scope) => scope.limits.requestsPerMinute === undefined)) return;
    if (performance.now() < this.#askRedisFrom) return;
    const rates = limits.map(({ limits: { credits: _, ...rest }, ...scope }) => ({ ...scope, limits: rest }));
    let reply: Reply;
    try {
      const pace = operation("pace", scopesText(rates, 0, true));
      reply = await this.#shards.of(organizationId).run(pace, REDIS_MS);
    } catch {
      // Nothing free needs Redis.
      this.#askRedisFrom = performance.now() + SILENT_MS;
      return;
    }
    const [word, owner, waitMs, limit] = reply;
    if (word !== "limited") return;
    metrics.refused.inc({ reason: "limit" });
    throw limitReached({ letter: owner, keyId }, "requests", Number(limit), Number(waitMs), {});
  }

  /** Which budget is used up and for how many milliseconds, 0 for none; null: Redis is silent. */
  async #takeInRedis(
    organizationId: string,
    group: Payer["kind"],
    perMinute: number,
    size: number,
    { requests, text, takeText }: FreeUse,
  ): Promise<readonly [Kind, number] | null> {
    if (performance.now() < this.#askRedisFrom) return null;
    const taken = takeText ? text : 0;
    const amounts = [perMinute, size, requests, TEXT_PER_MINUTE, text, taken].map(String);
    try {
      const [word, kind, waitMs] = await this.#shards
        .of(organizationId)
        .run(operation("free", organizationId, group, ...amounts), REDIS_MS);
      return word === "limited" ? [kind === "text" ? "text" : "requests", Number(waitMs)] : ["requests", 0];
    } catch {
      this.#askRedisFrom = performance.now() + SILENT_MS;
      return null;
    }
  }

  #takeHere(
    name: string,
    perMinute: number,
    size: number,
    { requests, text, takeText }: FreeUse,
  ): readonly [Kind, number] {
    const now = performance.now();
    let own = this.#own.get(name);
    if (own === undefined) {
      const bucket = (minute: number, atOnce: number) => new TokenBucket(minute / 60, atOnce, now);
      own = { requests: bucket(perMinute, size), text: bucket(TEXT_PER_MINUTE, TEXT_PER_MINUTE) };
      this.#own.set(name, own);
    }
    const lacking = text - own.text.level(now);
    if (text > 0 && lacking > 0) return ["text", (lacking * 60_000) / TEXT_PER_MINUTE];
    const waitMs = own.requests.take(requests, now);
    if (waitMs === 0 && takeText) own.text.spend(text, now);
    return ["requests", waitMs];
  }
}

function refused(kind: Kind, perMinute: number, waitMs: number): ApiError {
  metrics.refused.inc({ reason: kind === "text" ? "text" : "free" });
  const what =
    kind === "text"
      ? `${TEXT_MIB_PER_MINUTE} MiB of counted text per minute`
      : `${perMinute} requests per minute to endpoints that cost nothing`;
  return new ApiError("rate_limited", `The organization's limit of ${what} is reached.`, {
    retryAfterSeconds: retryAfter(waitMs),
  });
}
