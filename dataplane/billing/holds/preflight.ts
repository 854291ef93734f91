/** Checks of a request by its key alone, before a byte of its body is read (rules 7.1 and 7.7). */
import type { Dialect } from "../../dialects/dialect.ts";
import type { FreeBudget } from "./free-budget.ts";
import type { Gate } from "./gate.ts";
import type { Payer } from "../meter.ts";

export class Preflight {
  readonly #gate: Gate;
  readonly #free: FreeBudget;

  constructor(gate: Gate, free: FreeBudget) {
    this.#gate = gate;
    this.#free = free;
  }

  /**
   * Checks whether an inference may begin, without taking anything; its hold checks again. undefined: Redis said within the
   * last second that it may. `large`: its body costs so much that the limits are looked at anew.
   * @throws ApiError 401, 402, 429, 503 as the hold.
   */
  inference(payer: Payer, endpoint: Dialect, large: boolean): Promise<void> | undefined {
    if (this.#gate.knownFine(payer, large)) return undefined;
    return this.#gate.look(payer, endpoint);
  }

  /** Checks credit, for endpoints that are free, but only for those who have credit. @throws ApiError 402, 503 */
  async credit(payer: Payer): Promise<void> {
    if (this.#gate.knownFine(payer, false)) return;
    await this.#gate.lookForCredit(payer);
  }

  /** How many requests of an organization to endpoints that are free go on at once. */
  freeAtOnce(organizationId: string): number {
    return this.#free.atOnce(organizationId);
  }

  /** Counts a request to an endpoint that is free. @throws ApiError 429 */
  async free(payer: Payer): Promise<void> {
    await this.#free.take(payer, { requests: 1, text: 0, takeText: false });
  }

  /** The same, to one that counts the tokens of at least so many bytes of text. @throws ApiError 429 */
  async counting(payer: Payer, text: number): Promise<void> {
    await this.#free.take(payer, { requests: 1, text, takeText: false });
    await this.#free.pace(payer);
  }

  /** Takes bytes of text that are about to be counted. @throws ApiError 429 */
  async text(payer: Payer, bytes: number): Promise<void> {
    await this.#free.take(payer, { requests: 0, text: bytes, takeText: true });
  }
}
