/**
 * Charging (design.md §5): a usage row is charged when it is inserted, and account and hourly sums move with it in
 * the same transaction. A row that the ledger refuses is parked instead, charged to its account and kept word for
 * word, so that it holds up no other.
 */
import type { DatabasePool, DatabaseTransactionConnection } from "slonik";
import { refusesData } from "../store/postgres.ts";
import { lockAccounts, type Account } from "./accounts.ts";
import { Changes, dropProvisional, insertRows, isStored, storeChanges } from "./ledger.ts";
import type { Micros } from "./meter.ts";
import { digestOf, insertParked, readParked, takeParked, type ParkedCharge } from "./parked-charges.ts";
import { decodeRow, encodeRow, type UsageRow } from "./usage-row.ts";

/**
 * Stores usage rows and charges those that were not stored before; a row that is there already changes nothing,
 * except that a final row replaces a provisional one and moves the books by the difference. Usable inside a larger
 * transaction (a batch item's result, row and charge commit together): take other locks before this one.
 * Returns every account that was touched, as it is now.
 */
export async function chargeRows(
  transaction: DatabaseTransactionConnection,
  rows: readonly UsageRow[],
): Promise<readonly Account[]> {
  if (rows.length === 0) return [];
  const wanted = withoutRepeats(rows);
  // All at once, so that rows which are charged apart still lock in the order of their accounts.
  const before = await lockAccounts(
    transaction,
    wanted.map((row) => row.organizationId),
  );
  const accounts = new Map(before.map((account) => [account.organizationId, account]));
  for (const account of await chargeApart(transaction, wanted)) accounts.set(account.organizationId, account);
  return [...accounts.values()];
}

/** A charge in the stream whose row cannot be read. */
export interface UnreadableCharge {
  readonly organizationId: string;
  readonly cost: Micros;
  readonly text: string;
  readonly reason: unknown;
}

/** Parks what an entry of the stream says, once for its text. Returns the accounts that moved. */
export async function chargeUnreadable(
  transaction: DatabaseTransactionConnection,
  { organizationId, cost, text, reason }: UnreadableCharge,
): Promise<readonly Account[]> {
  const charge = { id: digestOf(text), organizationId, charged: cost, provisional: false, text };
  return await parkOr(transaction, charge, reason, async (savepoint) => {
    await lockAccounts(savepoint, [organizationId]);
    const changes = new Changes();
    if (await insertParked(savepoint, charge, reason)) changes.charge(organizationId, cost);
    return await storeChanges(savepoint, changes);
  });
}

/** Makes a parked charge a usage row. False: it is still refused, or still cannot be read. */
export async function retryParked(pool: DatabasePool, parked: ParkedCharge): Promise<boolean> {
  const row = tryDecode(parked.text);
  if (row === null) return false;
  try {
    await pool.transaction(async (transaction) => {
      await lockAccounts(transaction, [row.organizationId, parked.organizationId ?? row.organizationId]);
      const changes = new Changes();
      await unpark(transaction, [parked.id], changes);
      await chargeTogether(transaction, [row], changes);
    });
    return true;
  } catch (error) {
    if (refusesData(error)) return false;
    throw error;
  }
}

/** Within one call a final row beats a provisional one of the same request, and the first beats its repeats. */
function withoutRepeats(rows: readonly UsageRow[]): UsageRow[] {
  const byId = new Map<string, UsageRow>();
  for (const row of rows) {
    const known = byId.get(row.id);
    if (known === undefined || (known.provisional && !row.provisional)) byId.set(row.id, row);
  }
  return [...byId.values()];
}

/** Charges the rows together; when the ledger refuses, each half by itself, down to the row that is parked. */
async function chargeApart(
  transaction: DatabaseTransactionConnection,
  rows: readonly UsageRow[],
): Promise<readonly Account[]> {
  try {
    return await transaction.transaction((savepoint) => chargeTogether(savepoint, rows, new Changes()));
  } catch (error) {
    if (!refusesData(error)) throw error;
    const [first] = rows;
    if (first !== undefined && rows.length === 1) return await park(transaction, first, error);
    const middle = Math.ceil(rows.length / 2);
    const accounts = await chargeApart(transaction, rows.slice(0, middle));
    // Later versions of an account come last.
    return [...accounts, ...(await chargeApart(transaction, rows.slice(middle)))];
  }
}

async function chargeTogether(
  transaction: DatabaseTransactionConnection,
  rows: readonly UsageRow[],
  changes: Changes,
): Promise<readonly Account[]> {
  const wanted = await withoutParked(transaction, rows, changes);
  await dropProvisional(transaction, wanted, changes);
  for (const row of await insertRows(transaction, wanted)) changes.add(row);
  return await storeChanges(transaction, changes);
}

/** Leaves out what is parked already, except that a final row takes the place of a parked provisional one. */
async function withoutParked(
  transaction: DatabaseTransactionConnection,
  rows: readonly UsageRow[],
  changes: Changes,
): Promise<readonly UsageRow[]> {
  const parked = new Map(
    (
      await readParked(
        transaction,
        rows.map(({ id }) => id),
      )
    ).map(({ id, provisional }) => [id, provisional]),
  );
  if (parked.size === 0) return rows;
  const replaced = rows.filter((row) => parked.get(row.id) === true && !row.provisional);
  await unpark(
    transaction,
    replaced.map(({ id }) => id),
    changes,
  );
  return rows.filter((row) => !parked.has(row.id) || replaced.includes(row));
}

async function unpark(
  transaction: DatabaseTransactionConnection,
  ids: readonly string[],
  changes: Changes,
): Promise<void> {
  for (const { organizationId, charged } of await takeParked(transaction, ids)) {
    if (organizationId !== null) changes.charge(organizationId, -charged);
  }
}

/** Charges a row to its account and parks it. */
async function park(
  transaction: DatabaseTransactionConnection,
  row: UsageRow,
  reason: unknown,
): Promise<readonly Account[]> {
  const { id, organizationId, provisional, cost } = row;
  const charge = { id, organizationId, charged: cost.total, provisional, text: encodeRow(row) };
  return await parkOr(transaction, charge, reason, async (savepoint) => {
    const changes = new Changes();
    const [wanted] = await withoutParked(savepoint, [row], changes);
    if (wanted === undefined || (await isStored(savepoint, row))) return [];
    await dropProvisional(savepoint, [row], changes);
    await insertParked(savepoint, charge, reason);
    changes.charge(organizationId, cost.total);
    return await storeChanges(savepoint, changes);
  });
}

/** Parks as `parking` does, or, when that is refused as well, without a charge to anybody. */
async function parkOr(
  transaction: DatabaseTransactionConnection,
  charge: ParkedCharge,
  reason: unknown,
  parking: (savepoint: DatabaseTransactionConnection) => Promise<readonly Account[]>,
): Promise<readonly Account[]> {
  try {
    return await transaction.transaction(parking);
  } catch (error) {
    if (!refusesData(error)) throw error;
    const nobodys = { ...charge, id: digestOf(charge.text), organizationId: null, charged: 0n };
    await insertParked(transaction, nobodys, reason);
    return [];
  }
}

function tryDecode(text: string): UsageRow | null {
  try {
    return decodeRow(text);
  } catch {
    return null;
  }
}
