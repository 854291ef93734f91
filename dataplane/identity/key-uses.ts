/** When keys were last used: gathered in this process, and written to Postgres together. */
import { sql, type DatabasePool } from "slonik";
import type { Clock } from "../lib/clock.ts";
import type { Principal } from "./principal.ts";

export interface KeyUsesOptions {
  readonly pool: DatabasePool;
  /** Unix milliseconds. */
  readonly clock: Clock;
}

export class KeyUses {
  readonly #options: KeyUsesOptions;
  /** Keys used since the last `write`, with Unix milliseconds. */
  #used = new Map<string, number>();

  constructor(options: KeyUsesOptions) {
    this.#options = options;
  }

  saw({ keyId }: Principal): void {
    this.#used.set(keyId, this.#options.clock.now());
  }

  /** Writes `last_used_at` of the keys used since the last time. @throws Error; the uses are kept for the next time then. */
  async write(): Promise<void> {
    const used = this.#used;
    if (used.size === 0) return;
    this.#used = new Map();
    try {
      // In the order of their ids, as other pods write the same keys: otherwise two could deadlock.
      await this.#options.pool.query(sql.unsafe`
        with used as (
          select key.id, used.at
          from api_keys key join ${sql.unnest(
            Array.from(used, ([keyId, at]) => [keyId, new Date(at).toISOString()]),
            ["text", "timestamptz"],
          )} as used (id, at) on used.id = key.id
          order by key.id for no key update of key
        )
        update api_keys key
        set last_used_at = greatest(key.last_used_at, used.at)
        from used
        where key.id = used.id
      `);
    } catch (error) {
      for (const [keyId, at] of used) if (!this.#used.has(keyId)) this.#used.set(keyId, at);
      throw error;
    }
  }
}
