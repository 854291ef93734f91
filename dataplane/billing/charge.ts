/**
 * Charging (design.md §5): a usage row is charged when it is inserted, and account and hourly sums move with it in
 * the same transaction. A row that the ledger refuses is parked instead, charged to its account and kept word for
 * word, so that it holds up no other.
 */
import type { DatabasePool, DatabaseTransactionConnection } from "slonik";
import { refusesData } from "../store/postgres.ts";
import { chargeAccount, lockAccounts, type Account } from "./accounts.ts";
import { decodeRow, encodeRow } from "./charge-text.ts";
import { dropProvisional, isStored, storeRows } from "./ledger.ts";
import type { Micros } from "./meter.ts";
import { digestOf, insertParked, readParked, takeParked, type ParkedCharge } from "./parked-charges.ts";
import type { UsageRow } from "./usage-row.ts";

/** A charge on its way to the ledger. */
export interface Charge {
  /** Empty: it names none. */
  readonly organizationId: string;
  readonly cost: Micros;
  /** The encoded row. */
  readonly text: string;
}

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
  return await chargeAll(
    transaction,
    rows.map((row) => ({ organizationId: row.organizationId, cost: row.cost.total, text: encodeRow(row) })),
  );
}

/** As `chargeRows`, for rows as they stand in the stream: nothing of them is looked at unless one is refused. */
export async function chargeAll(
  transaction: DatabaseTransactionConnection,
  charges: readonly Charge[],
): Promise<readonly Account[]> {
  if (charges.length === 0) return [];
  try {
    return await transaction.transaction((savepoint) =>
      storeRows(
        savepoint,
        charges.map(({ text }) => text),
      ),
    );
  } catch (error) {
    if (!refusesData(error)) throw error;
  }
  return await chargeDoubtful(transaction, charges);
}

/** Makes a parked charge a usage row. False: it is still refused, or still cannot be read. */
export async function retryParked(pool: DatabasePool, parked: ParkedCharge): Promise<boolean> {
  const row = tryDecode(parked.text);
  if (row === null) return false;
  try {
    await pool.transaction(async (transaction) => {
      await lockAccounts(transaction, [row.organizationId, parked.organizationId ?? row.organizationId]);
      await unpark(transaction, parked.id);
      await storeRows(transaction, [parked.text]);
    });
    return true;
  } catch (error) {
    if (refusesData(error)) return false;
    throw error;
  }
}

interface ReadCharge extends Charge {
  readonly row: UsageRow;
}

/**
 * At least one of these is refused: parks those that cannot be read, and finds the others that the ledger
 * refuses.
 */
async function chargeDoubtful(
  transaction: DatabaseTransactionConnection,
  charges: readonly Charge[],
): Promise<readonly Account[]> {
  const readable: ReadCharge[] = [];
  const unreadable: [Charge, unknown][] = [];
  for (const charge of charges) {
    try {
      readable.push({ ...charge, row: decodeRow(charge.text) });
    } catch (reason) {
      unreadable.push([charge, reason]);
    }
  }
  // All at once, so that rows which are charged apart still lock in the order of their accounts.
  const touched = [
    ...(await lockAccounts(
      transaction,
      readable.map(({ row }) => row.organizationId),
    )),
  ];
  touched.push(...(await chargeApart(transaction, readable)));
  for (const [charge, reason] of unreadable) touched.push(...(await parkText(transaction, charge, reason)));
  // Later versions of an account come last.
  return [...new Map(touched.map((account) => [account.organizationId, account])).values()];
}

/** Charges the rows together; when the ledger refuses, each half by itself, down to the row that is parked. */
async function chargeApart(
  transaction: DatabaseTransactionConnection,
  charges: readonly ReadCharge[],
): Promise<readonly Account[]> {
  const [first] = charges;
  if (first === undefined) return [];
  try {
    return await transaction.transaction((savepoint) =>
      storeRows(
        savepoint,
        charges.map(({ text }) => text),
      ),
    );
  } catch (error) {
    if (!refusesData(error)) throw error;
    if (charges.length === 1) return await parkRow(transaction, first, error);
    const middle = Math.ceil(charges.length / 2);
    const accounts = await chargeApart(transaction, charges.slice(0, middle));
    return [...accounts, ...(await chargeApart(transaction, charges.slice(middle)))];
  }
}

/** Charges a row to its account and parks it. */
async function parkRow(
  transaction: DatabaseTransactionConnection,
  { row, text }: ReadCharge,
  reason: unknown,
): Promise<readonly Account[]> {
  const { id, organizationId, provisional, cost } = row;
  const charge = { id, organizationId, charged: cost.total, provisional, text };
  return await parkOr(transaction, charge, reason, async (savepoint) => {
    const [parked] = await readParked(savepoint, [id]);
    const takesItsPlace = parked?.provisional === true && !provisional;
    if (parked !== undefined && !takesItsPlace) return [];
    if (await isStored(savepoint, row)) return [];
    if (takesItsPlace) await unpark(savepoint, id);
    if (!provisional) await dropProvisional(savepoint, row);
    await insertParked(savepoint, charge, reason);
    return await chargeAccount(savepoint, organizationId, cost.total);
  });
}

/** Charges what cannot be read to the account that it names, once for its text, and parks it. */
async function parkText(
  transaction: DatabaseTransactionConnection,
  { organizationId, cost, text }: Charge,
  reason: unknown,
): Promise<readonly Account[]> {
  const charge = { id: digestOf(text), organizationId, charged: cost, provisional: false, text };
  if (organizationId === "") return await parkForNobody(transaction, charge, reason);
  return await parkOr(transaction, charge, reason, async (savepoint) => {
    await lockAccounts(savepoint, [organizationId]);
    if (!(await insertParked(savepoint, charge, reason))) return [];
    return await chargeAccount(savepoint, organizationId, cost);
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
    return await parkForNobody(transaction, charge, reason);
  }
}

async function parkForNobody(
  transaction: DatabaseTransactionConnection,
  charge: ParkedCharge,
  reason: unknown,
): Promise<readonly Account[]> {
  const nobodys = { ...charge, id: digestOf(charge.text), organizationId: null, charged: 0n };
  await insertParked(transaction, nobodys, reason);
  return [];
}

/** Takes a parked charge out and gives back what it had charged. */
async function unpark(transaction: DatabaseTransactionConnection, id: string): Promise<void> {
  for (const { organizationId, charged } of await takeParked(transaction, [id])) {
    if (organizationId !== null) await chargeAccount(transaction, organizationId, -charged);
  }
}

function tryDecode(text: string): UsageRow | null {
  try {
    return decodeRow(text);
  } catch {
    return null;
  }
}
