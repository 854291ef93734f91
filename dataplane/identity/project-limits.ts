/** Changing what the keys of a project may spend together, through the admin API (rule 9.5). */
import { sql, type DatabasePool } from "slonik";
import { bumpKeyEpoch } from "../billing/ledger/accounts.ts";
import type { Holds } from "../billing/holds/holds.ts";
import { limitChanges, writeAuditLog, type Actor } from "./audit-log.ts";
import type { KeyDirectory } from "./directory.ts";
import { changedLimits, jsonb, type LimitsChange } from "./limits.ts";
import { changeOrganization } from "./lock-organization.ts";
import { findProject, type Project } from "./projects.ts";
import { tellKeyEpoch } from "./tell-key-epoch.ts";

export interface ProjectLimitsNeeds {
  readonly directory: Pick<KeyDirectory, "projectChanged">;
  readonly holds: Pick<Holds, "refresh">;
}

/**
 * Changes a project's limits. null: there is no such project. `declared`: its limits are declared, and stay. Limits that stay as
 * they are count as no change.
 * @throws ApiError 429 beyond `MOST_CHANGES`, 503 when Redis cannot be told.
 */
export async function changeProjectLimits(
  pool: DatabasePool,
  { directory, holds }: ProjectLimitsNeeds,
  actor: Actor,
  id: string,
  change: LimitsChange | null,
): Promise<Project | "declared" | null> {
  const { organizationId } = actor;
  const outcome = await changeOrganization(pool, organizationId, async (transaction) => {
    const before = await findProject(transaction, organizationId, id);
    if (before === null) return null;
    if (before.limitsDeclared) return "declared";
    const limits = changedLimits(before.limits, change);
    const [from, to] = [textOf(before.limits), textOf(limits)];
    if (from === to) return before;
    await limitChanges(transaction, organizationId);
    await transaction.query(
      sql.unsafe`update projects set limits = ${jsonb(limits)} where id = ${before.id}`,
    );
    await writeAuditLog(transaction, actor, "project.updated", before.id, { limits: { from, to } });
    await bumpKeyEpoch(transaction, organizationId);
    return { ...before, limits };
  });
  if (outcome !== null && outcome !== "declared") {
    directory.projectChanged(outcome.id);
    await tellKeyEpoch(holds, organizationId);
  }
  return outcome;
}

/** Writes limits as text, the same for the same limits: both come out of their schema. */
const textOf = (limits: Project["limits"]): string | null => limits && JSON.stringify(limits);
