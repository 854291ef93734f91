/** `/v1/organization/credits`: what an organization was granted, has used, and stores. Source: rule 5.18. */
import type { DatabasePool } from "slonik";
import { creditsText } from "../../billing/credits.ts";
import { readGrants } from "../../billing/ledger/grants.ts";
import type { Holds } from "../../billing/holds/holds.ts";
import { storageOf, type StorageLimits } from "../../files/storage.ts";
import { isoSeconds } from "../../lib/unix-time.ts";
import { callerOf, type Routes } from "../route.ts";

export interface CreditNeeds {
  readonly pool: DatabasePool;
  readonly holds: Pick<Holds, "standing">;
  /** How much an organization may store. */
  readonly limitsOf: (organizationId: string) => StorageLimits;
}

export const creditRoutes =
  ({ pool, holds, limitsOf }: CreditNeeds): Routes =>
  (app) => {
    app.get("/v1/organization/credits", { config: { access: "admin" } }, async (request) => {
      const { organizationId } = callerOf(request);
      const { granted, used, held, available } = await holds.standing.credit(organizationId);
      const stored = await storageOf(pool, organizationId);
      const { maxBytes, maxFiles } = limitsOf(organizationId);
      const grants = await readGrants(pool, organizationId);
      return {
        object: "organization.credits",
        granted: creditsText(granted),
        used: creditsText(used),
        held: creditsText(held),
        available: creditsText(available),
        storage: { bytes: stored.bytes, max_bytes: maxBytes, files: stored.files, max_files: maxFiles },
        grants: grants.map(({ name, amount, source, appliedAt }) => ({
          name,
          amount: creditsText(amount),
          granted_at: isoSeconds(appliedAt),
          source,
        })),
      };
    });
  };
