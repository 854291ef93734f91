/** The ledger's spend of scopes of limits: sums by key, project and day, moved with the rows. */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { ledgerWord } from "../ledger/accounts.ts";
import type { LedgerWord } from "../ledger/ledger-identity.ts";
import type { Micros } from "../credits.ts";
import type { CreditScope } from "../scopes.ts";
import { operation, type MeterOperation } from "./shard.ts";

/** A scope's spend as of one version of its organization's account. */
export interface ScopeSpend {
  readonly organizationId: string;
  readonly name: string;
  readonly spent: Micros;
  readonly version: bigint;
  readonly ledger: LedgerWord;
}

export interface ScopeOf {
  readonly organizationId: string;
  readonly scope: CreditScope;
}

const spendSchema = z.object({
  organizationId: z.string(),
  name: z.string(),
  spent: z.bigint(),
  version: z.bigint(),
  ledger: z.string(),
});

/** Reads spends in one statement, so that sums and versions are of one moment. None for an organization without an account. */
export async function readScopeSpend(
  pool: CommonQueryMethods,
  scopes: readonly ScopeOf[],
): Promise<readonly ScopeSpend[]> {
  if (scopes.length === 0) return [];
  return await pool.any(sql.type(spendSchema)`
    select asked.organization_id as "organizationId", asked.name, coalesce(spend.micros, 0)::int8 as spent,
      account.version, ${ledgerWord}
    from ${sql.unnest(
      scopes.map(({ organizationId, scope: { name, id, from, to } }) => [organizationId, name, id, from, to]),
      ["text", "text", "text", "int4", "int4"],
    )} as asked (organization_id, name, scope_id, from_day, to_day)
    join accounts account on account.organization_id = asked.organization_id
    cross join lateral (
      select sum(daily.micros) as micros from usage_daily daily
      where daily.organization_id = asked.organization_id and daily.scope_id = asked.scope_id
        and daily.day >= asked.from_day and daily.day < asked.to_day
    ) spend
  `);
}

/** Writes a spend to Redis. `limitsEpoch`: the key epoch that the limits were looked up under, as text. */
export const scopeOperation = (
  { organizationId, name, spent, version, ledger }: ScopeSpend,
  limitsEpoch: string,
): MeterOperation =>
  operation("scope", organizationId, name, (-spent).toString(), version.toString(), ledger, limitsEpoch);
