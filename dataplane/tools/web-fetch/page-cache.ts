/**
 * Cache of fetched pages (rule 3.16): keyed by organization, policy, its generation and URL, with the redirect hops that led
 * there. Only whole successes are stored, each at most 1 MiB.
 */
import { createHash } from "node:crypto";
import { MAX_ENTRY_BYTES, type ToolCache } from "../cache.ts";
import type { FetchedPage } from "../outcomes.ts";

export interface KeptPage extends FetchedPage {
  /** Every URL of the redirect chain, the page's own last. */
  readonly hops: readonly string[];
}

export class PageCache {
  readonly #cache: ToolCache;
  readonly #ttlMs: number;
  readonly #scope: readonly [organizationId: string, ...string[]];

  /** @param scope organization, policy uid, policy generation. */
  constructor(cache: ToolCache, ttlMs: number, scope: readonly [organizationId: string, ...string[]]) {
    this.#cache = cache;
    this.#ttlMs = ttlMs;
    this.#scope = scope;
  }

  async get(url: string): Promise<KeptPage | null> {
    const entry = await this.#cache.get(this.#key(url));
    // Only this class writes these keys.
    return entry === null ? null : (JSON.parse(entry.toString("utf8")) as KeptPage);
  }

  async set(url: string, page: KeptPage): Promise<void> {
    const { source } = page;
    if ((source.type === "text" ? source.text : source.base64).length > MAX_ENTRY_BYTES) return;
    const [organizationId] = this.#scope;
    await this.#cache.set(organizationId, this.#key(url), Buffer.from(JSON.stringify(page)), this.#ttlMs);
  }

  #key(url: string): string {
    const parts = JSON.stringify([...this.#scope, url]);
    return `page:${createHash("sha256").update(parts).digest("base64url")}`;
  }
}
