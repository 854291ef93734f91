/**
 * Charging (design.md §5): a usage row is charged when it is inserted, and account and hourly sums move with it in
 * the same transaction. A row that the ledger refuses becomes a dead letter instead, charged to its account and kept word for
 * word, so that it holds up no other.
 */
import type { DatabasePool, DatabaseTransactionConnection } from "slonik";
import { refusesData } from "../../store/postgres.ts";
import { isStoreAway } from "../../store/store-away.ts";
import { chargeAccount, lockAccounts, type Account } from "./accounts.ts";
import { decodeRow, encodeRow } from "./charge-text.ts";
import { dropProvisional, isClosedMonth, isStored, storeRows } from "./ledger.ts";
import type { Micros } from "../credits.ts";
import {
  chargeDigest,
  insertDeadLetter,
  readDeadLetters,
  takeDeadLetters,
  type DeadLetter,
  type DeadLetterNotice,
} from "./dead-letters.ts";
import type { UsageRow } from "./usage-row.ts";

/** A charge on its way to the ledger. */
export interface Charge {
  /** Empty: the row names none. */
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
  return await chargeAll(transaction, rows.map(chargeOf));
}

/**
 * As `chargeRows`, for rows that were refused again and again: each that the ledger refuses becomes a dead letter, whatever it
 * is refused for.
 */
export async function chargeOrSetAside(
  transaction: DatabaseTransactionConnection,
  rows: readonly UsageRow[],
): Promise<readonly Account[]> {
  return await chargeDoubtful(transaction, rows.map(chargeOf), (error) => !isStoreAway(error));
}

const chargeOf = (row: UsageRow): Charge => ({
  organizationId: row.organizationId,
  cost: row.cost.total,
  text: encodeRow(row),
});

/** As `chargeRows`, for encoded rows of the stream: they are decoded only when one of them is refused. */
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
  return await chargeDoubtful(transaction, charges, refusesData);
}

/** Turns a dead letter into a usage row, and returns the organization that pays. null: it is still refused, or unreadable. */
export async function retryDeadLetter(pool: DatabasePool, letter: DeadLetterNotice): Promise<string | null> {
  const row = tryDecode(letter.text);
  if (row === null) return null;
  try {
    await pool.transaction(async (transaction) => {
      await lockAccounts(transaction, [row.organizationId, letter.organizationId ?? row.organizationId]);
      await takeOut(transaction, letter.id);
      await storeRows(transaction, [encodeRow(row)], letter.refusedAt);
    });
    return row.organizationId;
  } catch (error) {
    if (isStoreAway(error)) throw error;
    return null;
  }
}

interface ReadCharge extends Charge {
  readonly row: UsageRow;
}

/**
 * Charges rows of which at least one is refused: unreadable rows and those that the ledger refuses become dead letters.
 * `isRefused`: whether an error means a refusal.
 */
async function chargeDoubtful(
  transaction: DatabaseTransactionConnection,
  charges: readonly Charge[],
  isRefused: (error: unknown) => boolean,
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
  // All locks at once, so that rows which are charged apart still lock in the order of their accounts.
  const touched = [
    ...(await lockAccounts(
      transaction,
      readable.map(({ row }) => row.organizationId),
    )),
  ];
  touched.push(...(await chargeApart(transaction, readable, isRefused)));
  for (const [charge, reason] of unreadable) touched.push(...(await refuseText(transaction, charge, reason)));
  return newestOf(touched);
}

/** Each account once, in its last version in the list. */
const newestOf = (accounts: readonly Account[]): readonly Account[] => [
  ...new Map(accounts.map((account) => [account.organizationId, account])).values(),
];

/** Charges the rows together; when the ledger refuses, each half by itself, down to the row that becomes a dead letter. */
async function chargeApart(
  transaction: DatabaseTransactionConnection,
  charges: readonly ReadCharge[],
  isRefused: (error: unknown) => boolean,
): Promise<readonly Account[]> {
  const [first] = charges;
  if (first === undefined) return [];
  try {
    return await transaction.transaction((savepoint) =>
      storeRows(
        savepoint,
        // In the present form, whatever form an older release wrote.
        charges.map(({ row }) => encodeRow(row)),
      ),
    );
  } catch (error) {
    if (!isRefused(error)) throw error;
    if (charges.length === 1) {
      // The row may have been charged before: nobody pays twice.
      if (isClosedMonth(error)) return await refuseForNobody(transaction, first, error);
      return await refuseRow(transaction, first, error);
    }
    const middle = Math.ceil(charges.length / 2);
    const accounts = await chargeApart(transaction, charges.slice(0, middle), isRefused);
    return [...accounts, ...(await chargeApart(transaction, charges.slice(middle), isRefused))];
  }
}

/** Charges a row to its account and keeps it as a dead letter. */
async function refuseRow(
  transaction: DatabaseTransactionConnection,
  { row, text }: ReadCharge,
  reason: unknown,
): Promise<readonly Account[]> {
  const { id, organizationId, provisional, cost } = row;
  const charge = { id, organizationId, charged: cost.total, provisional, text };
  return await refuseOr(transaction, charge, reason, async (savepoint) => {
    const [letter] = await readDeadLetters(savepoint, [id]);
    const takesItsPlace = letter?.provisional === true && !provisional;
    if (letter !== undefined && !takesItsPlace) return [];
    if (await isStored(savepoint, row)) return [];
    if (takesItsPlace) await takeOut(savepoint, id);
    if (!provisional) await dropProvisional(savepoint, row);
    await insertDeadLetter(savepoint, charge, reason);
    return await chargeAccount(savepoint, organizationId, cost.total);
  });
}

/** Charges an unreadable row to the account that it names, once for its text, and keeps it as a dead letter. */
async function refuseText(
  transaction: DatabaseTransactionConnection,
  { organizationId, cost, text }: Charge,
  reason: unknown,
): Promise<readonly Account[]> {
  const charge = { id: chargeDigest(text), organizationId, charged: cost, provisional: false, text };
  if (organizationId === "") return await refuseForNobody(transaction, charge, reason);
  return await refuseOr(transaction, charge, reason, async (savepoint) => {
    await lockAccounts(savepoint, [organizationId]);
    if (!(await insertDeadLetter(savepoint, charge, reason))) return [];
    return await chargeAccount(savepoint, organizationId, cost);
  });
}

/** Keeps a charge as `keeping` does, or, when that is refused as well, without charging anybody. */
async function refuseOr(
  transaction: DatabaseTransactionConnection,
  charge: DeadLetter,
  reason: unknown,
  keeping: (savepoint: DatabaseTransactionConnection) => Promise<readonly Account[]>,
): Promise<readonly Account[]> {
  try {
    return await transaction.transaction(keeping);
  } catch (error) {
    if (!refusesData(error)) throw error;
    return await refuseForNobody(transaction, charge, reason);
  }
}

async function refuseForNobody(
  transaction: DatabaseTransactionConnection,
  { text }: Pick<DeadLetter, "text">,
  reason: unknown,
): Promise<readonly Account[]> {
  const letter = { id: chargeDigest(text), organizationId: null, charged: 0n, provisional: false, text };
  await insertDeadLetter(transaction, letter, reason);
  return [];
}

/** Removes a dead letter and gives back what it had charged. */
async function takeOut(transaction: DatabaseTransactionConnection, id: string): Promise<void> {
  for (const { organizationId, charged } of await takeDeadLetters(transaction, [id])) {
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
