/** Keeps dead letters in sight of the operator, and tries them again: a newer release may be able to store them. */
import { LRUCache } from "lru-cache";
import type { Logger } from "pino";
import type { DatabasePool } from "slonik";
import { metrics } from "../../telemetry/metrics.ts";
import { retryDeadLetter } from "./charge.ts";
import { creditsText } from "../credits.ts";
import { countDeadLetters, pageDeadLetters } from "./dead-letters.ts";

/** Dead letters of one round; the next round continues after them, so that none hides another. */
const PAGE = 100;

export class DeadLetterRetry {
  readonly #pool: DatabasePool;
  readonly #log: Logger;
  /** Makes Redis read the spend of an organization's scopes again: its rows changed without Redis. */
  readonly #readAgain: (organizationId: string) => Promise<void>;
  /** Dead letters that were logged already. */
  readonly #named = new LRUCache<string, true>({ max: 10_000 });
  #lastId = "";

  constructor(pool: DatabasePool, log: Logger, readAgain: (organizationId: string) => Promise<void>) {
    this.#pool = pool;
    this.#log = log;
    this.#readAgain = readAgain;
  }

  /** One round. @throws when Postgres is away. */
  async look(): Promise<void> {
    const page = await pageDeadLetters(this.#pool, this.#lastId, PAGE);
    this.#lastId = page.length === PAGE ? (page.at(-1)?.id ?? "") : "";
    for (const letter of page) {
      const { id, organizationId, charged, reason } = letter;
      const about = { requestId: id, organizationId, credits: creditsText(charged) };
      const payer = await retryDeadLetter(this.#pool, letter);
      if (payer !== null) {
        this.#log.warn(about, "a dead letter is in the ledger now");
        await this.#readAgain(payer);
      } else if (!this.#named.has(id)) {
        this.#named.set(id, true);
        this.#log.error({ ...about, reason }, "the ledger refuses a charge: it is a dead letter");
      }
    }
    metrics.deadLetters.set(await countDeadLetters(this.#pool));
  }
}
