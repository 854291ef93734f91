/** Grants as the admin API shows them. */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";

const grantSchema = z.object({
  name: z.string(),
  amount: z.bigint(),
  source: z.enum(["declared", "command"]),
  appliedAt: z.number(),
});
/** `amount` in micro-credits; `appliedAt` in Unix milliseconds. */
export type AppliedGrant = z.infer<typeof grantSchema>;

/** Most grants that are shown; the sum of all is the balance's `granted`. */
const MOST_GRANTS = 1000;

/** Newest first. */
export async function readGrants(
  pool: CommonQueryMethods,
  organizationId: string,
): Promise<readonly AppliedGrant[]> {
  return await pool.any(sql.type(grantSchema)`
    select name, amount_micros as amount, source, applied_at as "appliedAt"
    from grants where organization_id = ${organizationId}
    order by applied_at desc, name limit ${MOST_GRANTS}
  `);
}
