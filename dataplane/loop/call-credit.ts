/** Lets calls begin while credit is left for them (rule 7.10). */
import type { Micros } from "../billing/credits.ts";
import type { ServerToolName } from "../dialects/server-tools.ts";

/**
 * Admits a call while credit is left beyond what the request has spent. Calls under way count with the most that they
 * may cost: where that may use up the credit, the next call waits for one of them to end.
 */
export class CallCredit {
  /** The credit left beyond what was spent. */
  readonly #left: () => Promise<Micros>;
  readonly #fee: (name: ServerToolName) => Micros;
  #underWay: Micros = 0n;
  #ended = 0;
  #next = Promise.withResolvers<void>();

  constructor(left: () => Promise<Micros>, fee: (name: ServerToolName) => Micros) {
    this.#left = left;
    this.#fee = fee;
  }

  /** Whether a call may begin. If so, `end` has to be called when it is over and charged. */
  async begin(name: ServerToolName): Promise<boolean> {
    for (;;) {
      const ended = this.#ended;
      const left = await this.#left();
      if (left <= 0n) return false;
      // A call that ended while `left` was read is missing from both sums, so both are read again.
      if (ended !== this.#ended) continue;
      if (left > this.#underWay) {
        this.#underWay += this.#fee(name);
        return true;
      }
      await this.#next.promise;
    }
  }

  end(name: ServerToolName): void {
    this.#underWay -= this.#fee(name);
    this.#ended += 1;
    this.#next.resolve();
    this.#next = Promise.withResolvers();
  }
}
