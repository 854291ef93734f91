/**
 * Charges whose rows the ledger lost and whose sum Redis knows (store/migrations/0002_ledger.sql): the account is charged the
 * sum, which shrinks when a data plane stores such rows again.
 */
import { sql, type CommonQueryMethods, type DatabaseTransactionConnection } from "slonik";
import { z } from "zod";
import { lockAccounts } from "./accounts.ts";
import { chargeAll, type Charge } from "./charge.ts";
import type { Micros } from "../credits.ts";

export interface Loss {
  readonly organizationId: string;
  readonly lost: Micros;
}

const lossSchema = z.object({ organizationId: z.string(), lost: z.bigint() });

/** Reads what the ledger has lost of each organization and not got back. */
export async function readLosses(db: CommonQueryMethods): Promise<readonly Loss[]> {
  return await db.any(sql.type(lossSchema)`
    select organization_id as "organizationId", lost_micros as lost from ledger_losses order by organization_id
  `);
}

/** State in Redis of an account of which the ledger has an older one. */
export interface KnownAccount {
  readonly organizationId: string;
  readonly base: Micros;
  readonly version: bigint;
}

/**
 * Charges these accounts what the ledger lost, and raises their versions above the known ones. Accounts in order are left
 * alone, so a repeat changes nothing. `record` false: changes nothing. Returns the accounts that are not in order, with 0 where
 * grants were lost rather than charges.
 */
export async function recordLosses(
  transaction: DatabaseTransactionConnection,
  known: readonly KnownAccount[],
  record: boolean,
): Promise<readonly Loss[]> {
  const wanted = new Map(known.map((account) => [account.organizationId, account]));
  const exist = await transaction.anyFirst(sql.type(z.object({ id: z.string() }))`
    select id from organizations where id = any(${sql.array([...wanted.keys()], "text")})
  `);
  const accounts = new Map(
    (await lockAccounts(transaction, exist)).map((account) => [account.organizationId, account]),
  );
  const losses: Loss[] = [];
  for (const { organizationId, base, version } of known) {
    const account = accounts.get(organizationId);
    // An organization that the ledger does not have cannot be charged; reconcile names it.
    if (account === undefined || account.version > version) continue;
    if (account.version === version && account.balance === base) continue;
    const lost = account.balance > base ? account.balance - base : 0n;
    losses.push({ organizationId, lost });
    if (record) await recordLoss(transaction, { organizationId, lost }, version);
  }
  return losses;
}

async function recordLoss(
  transaction: DatabaseTransactionConnection,
  { organizationId, lost }: Loss,
  version: bigint,
): Promise<void> {
  if (lost > 0n) {
    await transaction.query(sql.unsafe`
      insert into ledger_losses (organization_id, lost_micros) values (${organizationId}, ${lost})
      on conflict (organization_id) do update set lost_micros = ledger_losses.lost_micros + excluded.lost_micros
    `);
  }
  await transaction.query(sql.unsafe`
    update accounts
    set balance_micros = balance_micros - ${lost}, version = ${version + 1n}, changed_at = clock_timestamp()
    where organization_id = ${organizationId}
  `);
}

/**
 * Charges rows again that the ledger had; those that it still has change nothing. What comes back is taken off the losses.
 * Returns how much that is.
 */
export async function restoreCharges(
  transaction: DatabaseTransactionConnection,
  charges: readonly Charge[],
): Promise<Micros> {
  const ids = charges.map(({ organizationId }) => organizationId);
  const before = await lockAccounts(transaction, ids);
  const balances = new Map(before.map((account) => [account.organizationId, account.balance]));
  const after = await chargeAll(transaction, charges);
  let restored = 0n;
  for (const { organizationId, balance } of after) {
    const came = (balances.get(organizationId) ?? balance) - balance;
    if (came <= 0n) continue;
    restored += came;
    const lost = await transaction.maybeOneFirst(sql.type(z.object({ lost: z.bigint() }))`
      select lost_micros as lost from ledger_losses where organization_id = ${organizationId} for update
    `);
    if (lost === null) continue;
    const found = came < lost ? came : lost;
    await transaction.query(sql.unsafe`
      update accounts
      set balance_micros = balance_micros + ${found}, version = version + 1, changed_at = clock_timestamp()
      where organization_id = ${organizationId}
    `);
    if (found === lost) {
      await transaction.query(
        sql.unsafe`delete from ledger_losses where organization_id = ${organizationId}`,
      );
    } else {
      await transaction.query(sql.unsafe`
        update ledger_losses set lost_micros = lost_micros - ${found} where organization_id = ${organizationId}
      `);
    }
  }
  return restored;
}
