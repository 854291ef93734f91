/**
 * Accounts in Postgres: the running sum of each organization, its grants, and the lock that every change of a balance
 * takes (design.md §5). Several accounts are locked in the order of their ids; each change raises the version.
 */
import { sql, type CommonQueryMethods, type DatabaseTransactionConnection } from "slonik";
import { z } from "zod";
import type { LedgerWord } from "./ledger-identity.ts";
import { isOutOfBounds, type Micros } from "../credits.ts";

/** An account as of one version. */
export interface Account {
  readonly organizationId: string;
  /** Grants − usage. */
  readonly balance: Micros;
  readonly version: bigint;
  /** Word of the ledger and the server that was read (`ledger_word` in store/migrations/0002_ledger.sql). */
  readonly ledger: LedgerWord;
}

/** An account together with the epoch that its organization's keys are valid under. */
export interface KeyedAccount extends Account {
  readonly keyEpoch: bigint;
}

/** As a subquery: Postgres evaluates it once for a statement, and not for each of its rows. */
export const ledgerWord = sql.fragment`(select ledger_word()) as ledger`;

export const accountSchema = z.object({
  organizationId: z.string(),
  balance: z.bigint(),
  version: z.bigint(),
  ledger: z.string(),
});
/** For commands, where an id may be misspelt. @throws Error when no organization was ever declared under it. */
export async function requireOrganization(queries: CommonQueryMethods, id: string): Promise<void> {
  const known = await queries.exists(sql.type(z.object({}))`select 1 from organizations where id = ${id}`);
  if (!known) throw new Error(`there is no organization ${id}`);
}

const keyedAccountSchema = accountSchema.extend({ keyEpoch: z.bigint() });
const keyedAccounts = sql.fragment`
  select account.organization_id as "organizationId", account.balance_micros as balance, account.version,
    ${ledgerWord}, organization.key_epoch as "keyEpoch"
  from accounts account join organizations organization on organization.id = account.organization_id
`;

/** The account of each organization that has one, with its key epoch. */
export async function readAccounts(
  pool: CommonQueryMethods,
  organizationIds: readonly string[],
): Promise<readonly KeyedAccount[]> {
  return await pool.any(sql.type(keyedAccountSchema)`
    ${keyedAccounts}
    where account.organization_id = any(${sql.array([...organizationIds], "text")})
  `);
}

/** A page of all accounts, or of those whose organizations are declared, in the order of their ids. */
export async function pageAccounts(
  pool: CommonQueryMethods,
  afterId: string,
  limit: number,
  which: "all" | "declared" = "all",
): Promise<readonly KeyedAccount[]> {
  return await pool.any(sql.type(keyedAccountSchema)`
    ${keyedAccounts}
    where account.organization_id > ${afterId} and (${which === "all"} or organization.deleted_at is null)
    order by account.organization_id limit ${limit}
  `);
}

/** Accounts that changed within the last `seconds`, by Postgres' own clock. */
export async function changedAccounts(
  pool: CommonQueryMethods,
  seconds: number,
): Promise<readonly KeyedAccount[]> {
  return await pool.any(sql.type(keyedAccountSchema)`
    ${keyedAccounts}
    where account.changed_at > clock_timestamp() - make_interval(secs => ${seconds})
  `);
}

/** An organization's grants and its account, read at one moment; zeros when it has none. */
export async function readStanding(
  pool: CommonQueryMethods,
  organizationId: string,
): Promise<{ readonly granted: Micros; readonly balance: Micros; readonly version: bigint }> {
  return await pool.one(sql.type(z.object({ granted: z.bigint(), balance: z.bigint(), version: z.bigint() }))`
    select coalesce(sum(granted.amount_micros), 0)::int8 as granted,
      coalesce(max(account.balance_micros), 0) as balance, coalesce(max(account.version), 0) as version
    from (select ${organizationId} as id) organization
    left join accounts account on account.organization_id = organization.id
    left join grants granted on granted.organization_id = organization.id
  `);
}

/** Outcome of a grant: applied now; there already; there already with another amount; or out of bounds. */
export type GrantOutcome =
  | { readonly kind: "applied"; readonly account: Account }
  | { readonly kind: "repeated" }
  | { readonly kind: "unchanged"; readonly appliedMicros: Micros }
  | { readonly kind: "refused"; readonly balance: Micros };

/** Applies a grant once by its name (rule 1.10). A balance beyond 9×10^9 credits either way is refused. */
export async function applyGrant(
  transaction: DatabaseTransactionConnection,
  grant: {
    readonly organizationId: string;
    readonly name: string;
    readonly amount: Micros;
    readonly source: "declared" | "command";
  },
): Promise<GrantOutcome> {
  const [account] = await lockAccounts(transaction, [grant.organizationId]);
  const known = await transaction.maybeOneFirst(sql.type(z.object({ amount: z.bigint() }))`
    select amount_micros as amount from grants
    where organization_id = ${grant.organizationId} and name = ${grant.name}
  `);
  if (known !== null) {
    return known === grant.amount ? { kind: "repeated" } : { kind: "unchanged", appliedMicros: known };
  }
  const balance = account?.balance ?? 0n;
  const after = balance + grant.amount;
  if (isOutOfBounds(after)) return { kind: "refused", balance };
  await transaction.query(sql.unsafe`
    insert into grants (organization_id, name, amount_micros, source)
    values (${grant.organizationId}, ${grant.name}, ${grant.amount}, ${grant.source})
  `);
  const changed = await transaction.one(sql.type(accountSchema)`
    update accounts
    set balance_micros = balance_micros + ${grant.amount}, version = version + 1, changed_at = clock_timestamp(),
      full_micros = ${grant.amount > 0n ? sql.fragment`balance_micros` : sql.fragment`full_micros`} + ${grant.amount},
      fillings = fillings + ${grant.amount > 0n ? 1 : 0}
    where organization_id = ${grant.organizationId}
    returning organization_id as "organizationId", balance_micros as balance, version, ${ledgerWord}
  `);
  return { kind: "applied", account: changed };
}

/**
 * Makes every cached key of the organization be looked up again: call it in the transaction that ends a key, a project or an
 * organization, and push the account to Redis (`Holds.refresh`) after the commit.
 */
export async function bumpKeyEpoch(
  transaction: DatabaseTransactionConnection,
  organizationId: string,
): Promise<void> {
  await transaction.query(sql.unsafe`
    update organizations set key_epoch = key_epoch + 1 where id = ${organizationId}
  `);
  await transaction.query(sql.unsafe`
    update accounts set version = version + 1, changed_at = clock_timestamp()
    where organization_id = ${organizationId}
  `);
}

/** Charges an account without a row of `usage`; a negative charge gives back. Returns the account as it is now. */
export async function chargeAccount(
  transaction: DatabaseTransactionConnection,
  organizationId: string,
  micros: Micros,
): Promise<readonly Account[]> {
  return await transaction.any(sql.type(accountSchema)`
    update accounts
    set balance_micros = balance_micros - ${micros}, version = version + 1, changed_at = clock_timestamp()
    where organization_id = ${organizationId}
    returning organization_id as "organizationId", balance_micros as balance, version, ${ledgerWord}
  `);
}

/** Locks in the order of ids, so that two transactions never wait for each other; makes missing accounts. */
export async function lockAccounts(
  transaction: DatabaseTransactionConnection,
  organizationIds: readonly string[],
): Promise<readonly Account[]> {
  const ids = [...new Set(organizationIds)].sort();
  const lock = () =>
    transaction.any(sql.type(accountSchema)`
      select organization_id as "organizationId", balance_micros as balance, version, ${ledgerWord} from accounts
      where organization_id = any(${sql.array(ids, "text")})
      order by organization_id for update
    `);
  const locked = await lock();
  if (locked.length === ids.length) return locked;
  await transaction.query(sql.unsafe`
    insert into accounts (organization_id)
    select unnest(${sql.array(ids, "text")}) order by 1 on conflict do nothing
  `);
  return await lock();
}
