/**
 * Callers without a known key, told apart by the address that they connect from (rule 7.7); addresses in headers are not
 * believed. Each address may be refused so many times a second; beyond that it gets 429, and its keys wait in a queue to be
 * looked up (identity/key-lookup-queue.ts). Many callers share the address of an Ingress: a caller with a valid key is never
 * refused for what others sent.
 */
import ipaddr from "ipaddr.js";
import { LRUCache } from "lru-cache";
import { ApiError } from "../lib/api-error.ts";
import { TokenBucket } from "../lib/token-bucket.ts";
import { metrics } from "../telemetry/metrics.ts";
import { limits } from "./limits.ts";

/** Of more addresses the one quiet for longest is forgotten. */
const MOST_ADDRESSES = 10_000;

/** How an unknown key is looked up. */
export interface CallerLookup {
  /** False: it waits in the queue. */
  readonly atOnce: boolean;
  /** Whether the address may be refused once more before it gets 429. */
  readonly within: boolean;
}

export class UnknownCallers {
  readonly #addresses = new LRUCache<string, TokenBucket>({ max: MOST_ADDRESSES });
  readonly #perSecond: number;
  readonly #lookUps: TokenBucket;
  readonly #now: () => number;

  /** `now`: milliseconds of a clock that never goes back. */
  constructor(
    now: () => number = () => performance.now(),
    perSecond: number = limits.refusalsPerSecond,
    lookUpsPerSecond: number = limits.unknownKeysPerSecond,
  ) {
    this.#now = now;
    this.#perSecond = perSecond;
    this.#lookUps = new TokenBucket(lookUpsPerSecond, lookUpsPerSecond, now());
  }

  /** Counts a refusal: `error` while the address is within its rate, then 429. */
  refusal(address: string | undefined, error: ApiError): ApiError {
    return this.#bucketOf(address).take(1, this.#now()) === 0 ? error : tooManyRefusals();
  }

  /** Decides how a key is looked up that may be unknown; it counts as a refusal until it is found. */
  ask(address: string | undefined): CallerLookup {
    const now = this.#now();
    const within = this.#bucketOf(address).take(1, now) === 0;
    return { within, atOnce: within && this.#lookUps.take(1, now) === 0 };
  }

  /** Takes back what `ask` counted, once the key turned out to be valid. */
  found(address: string | undefined, { within, atOnce }: CallerLookup): void {
    if (within) this.#bucketOf(address).spend(-1, this.#now());
    if (atOnce) this.#lookUps.spend(-1, this.#now());
  }

  #bucketOf(address: string | undefined): TokenBucket {
    const name = networkOf(address);
    let bucket = this.#addresses.get(name);
    if (bucket === undefined) {
      bucket = new TokenBucket(this.#perSecond, this.#perSecond, this.#now());
      this.#addresses.set(name, bucket);
    }
    return bucket;
  }
}

/** The 429 for an address that was refused too often. */
export function tooManyRefusals(): ApiError {
  metrics.refused.inc({ reason: "address" });
  return new ApiError("rate_limited", "Too many requests without a valid API key came from this address.", {
    retryAfterSeconds: 1,
  });
}

/** The addresses that count as one caller: a single one of IPv4, a /64 of IPv6. A connection that has ended has none: empty. */
export function networkOf(address = ""): string {
  if (!address.includes(":") || !ipaddr.IPv6.isValid(address)) return address;
  const parsed = ipaddr.IPv6.parse(address);
  if (parsed.isIPv4MappedAddress()) return parsed.toIPv4Address().toString();
  return `${parsed.parts
    .slice(0, 4)
    .map((part) => part.toString(16))
    .join(":")}::/64`;
}
