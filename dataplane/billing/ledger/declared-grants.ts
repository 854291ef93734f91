/** Grants that Organizations declare: applied when a snapshot is copied, with notes on those that could not be (rule 1.10). */
import { sql, type CommonQueryMethods, type DatabaseTransactionConnection } from "slonik";
import { z } from "zod";
import type { NoteReason, OrganizationEntry } from "../../config/schema.ts";
import { applyGrant } from "./accounts.ts";
import type { Micros } from "../credits.ts";

/** A declared grant that the ledger has not, or has with another amount. */
export interface GrantNote {
  readonly organizationId: string;
  /** Path in the Organization. */
  readonly path: string;
  readonly reason: Extract<NoteReason, `Grant${string}`>;
}

/** A grant that is declared and was not applied. */
export interface NewGrant {
  readonly organizationId: string;
  readonly name: string;
  readonly amount: Micros;
}

/** The declared grants that were never applied: each is applied once by its name. */
export async function newGrants(
  transaction: DatabaseTransactionConnection,
  entries: readonly OrganizationEntry[],
): Promise<readonly NewGrant[]> {
  const applied = await readApplied(
    transaction,
    entries.map(({ id }) => id),
  );
  return entries.flatMap(({ id, grants }) =>
    grants
      .filter(({ name }) => !applied.has(JSON.stringify([id, name])))
      .map(({ name, amountMicros }) => ({ organizationId: id, name, amount: BigInt(amountMicros) })),
  );
}

/**
 * Applies grants. The caller has locked the accounts, where they are several organizations'. Returns the organizations whose
 * balance would have left its bounds: `grantNotes` reports them, and the next copy has to try again.
 */
export async function copyGrants(
  transaction: DatabaseTransactionConnection,
  grants: readonly NewGrant[],
): Promise<readonly string[]> {
  const refused: string[] = [];
  for (const grant of grants) {
    const { kind } = await applyGrant(transaction, { ...grant, source: "declared" });
    if (kind === "refused") refused.push(grant.organizationId);
  }
  return refused;
}

async function readApplied(
  transaction: DatabaseTransactionConnection,
  organizationIds: readonly string[],
): Promise<Set<string>> {
  const rows = await transaction.any(
    sql.type(z.object({ organizationId: z.string(), name: z.string() }))`
      select organization_id as "organizationId", name from grants
      where organization_id = any(${sql.array([...organizationIds], "text")})
    `,
  );
  return new Set(rows.map(({ organizationId, name }) => JSON.stringify([organizationId, name])));
}

/** Notes on the declared grants that differ from what is stored. */
export async function grantNotes(
  pool: CommonQueryMethods,
  organizations: readonly OrganizationEntry[],
): Promise<GrantNote[]> {
  const declared = organizations.flatMap(({ id, grants }) =>
    grants.map(({ name, amountMicros }, index) => [id, name, amountMicros, index] as const),
  );
  const rows = await pool.any(
    sql.type(z.object({ organizationId: z.string(), index: z.number(), missing: z.boolean() }))`
      select declared.organization_id as "organizationId", declared.index, applied.name is null as missing
      from ${sql.unnest(declared, ["text", "text", "numeric", "int4"])}
        as declared (organization_id, name, amount, index)
      left join grants applied
        on applied.organization_id = declared.organization_id and applied.name = declared.name
      where applied.amount_micros is distinct from declared.amount
      order by declared.organization_id, declared.index
    `,
  );
  return rows.map(({ organizationId, index, missing }) => ({
    organizationId,
    path: `spec.credits.grants[${index}]`,
    reason: missing ? "GrantRefused" : "GrantUnchanged",
  }));
}
