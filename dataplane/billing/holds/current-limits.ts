/**
 * Keys may end, move and get other limits while a request runs. Its charge then names the present scopes: otherwise Redis
 * cannot know which ones it counts in, and until the ledger has the charge no request of the organization with a limit of
 * credit may begin (`moved` in store/meter-shard.lua). Where long answers end for minutes after such a change, that would be
 * most of the time.
 */
import type { Logger } from "pino";
import { RecentMap } from "../../lib/recent-map.ts";
import type { CurrentKey, HeldBill } from "./held-bill.ts";

const MOST_KNOWN = 10_000;

export interface CurrentLimitsOptions {
  /** A key's limits in a project, whether or not it is still valid (`KeyDirectory.limitsOf`); epoch 0: it is not known. */
  readonly limitsOf: (keyId: string, projectId: string) => Promise<Pick<CurrentKey, "limits" | "keyEpoch">>;
  readonly log: Logger;
}

export class CurrentLimits {
  readonly #options: CurrentLimitsOptions;
  /** By organization: the newest epoch of its keys that a request came under. */
  readonly #newest = new RecentMap<number>(MOST_KNOWN);

  constructor(options: CurrentLimitsOptions) {
    this.#options = options;
  }

  /** Notes the key epoch of an admitted request. */
  saw({ request: { organizationId, limitsEpoch } }: HeldBill): void {
    const newest = this.#newest.get(organizationId);
    if (newest !== undefined && newest >= limitsEpoch) return;
    this.#newest.set(organizationId, limitsEpoch);
  }

  /** Updates a bill's scopes before its charge. undefined: they are current, as far as is known here. Never fails. */
  renew(bill: HeldBill): Promise<void> | undefined {
    const { organizationId, limitsEpoch } = bill.request;
    return (this.#newest.get(organizationId) ?? 0) > limitsEpoch ? this.#lookUp(bill) : undefined;
  }

  async #lookUp(bill: HeldBill): Promise<void> {
    const { id, keyId, projectId, limitsEpoch } = bill.request;
    try {
      const now = await this.#options.limitsOf(keyId, projectId);
      if (now.keyEpoch > limitsEpoch) bill.chargeUnder(now);
    } catch (error) {
      // The bill is charged to the scopes of its admission: others wait for the ledger, and no sum is wrong.
      this.#options.log.info(
        { err: error, request_id: id },
        "the limits of a running request's key are not known",
      );
    }
  }
}
