/** Changing what the keys of a project may spend together, through the admin API (rule 9.5). */
import { sql, type DatabasePool } from "slonik";
import { bumpKeyEpoch } from "../billing/accounts.ts";
import type { Holds } from "../billing/holds.ts";
import { writeAuditLog, type Actor } from "./audit-log.ts";
import { changedLimits, jsonb, type LimitsChange } from "./limits.ts";
import { lockOrganization } from "./lock-organization.ts";
import { findProject, type Project } from "./projects.ts";
import { tellKeyEpoch } from "./tell-key-epoch.ts";

/** null: there is no such project. Unless its limits are declared. @throws ApiError 503 when Redis does not hear of it. */
export async function changeProjectLimits(
  pool: DatabasePool,
  holds: Pick<Holds, "refresh">,
  actor: Actor,
  id: string,
  change: LimitsChange | null,
): Promise<Project | "declared" | null> {
  const { organizationId } = actor;
  const outcome = await pool.transaction(async (transaction) => {
    await lockOrganization(transaction, organizationId);
    const before = await findProject(transaction, organizationId, id);
    if (before === null) return null;
    if (before.limitsDeclared) return "declared";
    const limits = changedLimits(before.limits, change);
    await transaction.query(
      sql.unsafe`update projects set limits = ${jsonb(limits)} where id = ${before.id}`,
    );
    const text = (value: Project["limits"]) => value && JSON.stringify(value);
    await writeAuditLog(transaction, actor, "project.updated", before.id, {
      limits: { from: text(before.limits), to: text(limits) },
    });
    await bumpKeyEpoch(transaction, organizationId);
    return { ...before, limits };
  });
  if (outcome !== null && outcome !== "declared") await tellKeyEpoch(holds, organizationId);
  return outcome;
}
