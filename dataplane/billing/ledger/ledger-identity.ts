/** The identity of the ledger in this process' Postgres, made by a migration: a Redis database belongs to one ledger. */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { causesOf, sqlStateOf } from "../../lib/causes.ts";

/** Id that only a ledger and its copies or restored backups have. */
export type LedgerId = string;

/**
 * The ledger and the run of the server that answers for it, as Postgres reports it: it changes after anything that may have
 * taken transactions back.
 */
export type LedgerWord = string;

/** Reads which ledger this Postgres has and which run of a server answers for it. */
export async function readLedgerWord(pool: CommonQueryMethods): Promise<LedgerWord> {
  return await pool.oneFirst(sql.type(z.object({ word: z.string() }))`select ledger_word() as word`);
}

/** Whether a charge was refused because another server answers than the one that is known (`drain_charges`). */
export const isOtherServer = (error: unknown): boolean =>
  causesOf(error).some((cause) => sqlStateOf(cause) === "GL001");

/** Reads which ledger this Postgres has. */
export async function readLedgerId(pool: CommonQueryMethods): Promise<LedgerId> {
  return await pool.oneFirst(sql.type(z.object({ id: z.string() }))`select id from ledger`);
}

/** The ledger that an epoch of a shard belongs to (store/meter-apply.lua). null: none that is known. */
export function ledgerOf(epoch: string | null): LedgerId | null {
  return /^([^.]+)\./.exec(epoch ?? "")?.[1] ?? null;
}

/** Redis belongs to another ledger: nothing is held or charged in it. */
export class ForeignLedger extends Error {
  override readonly name = "ForeignLedger";
}

/** Says whose the Redis database is, and what to do. */
export const foreignText = (theirs: LedgerId, ours: LedgerId): string =>
  `this Redis database belongs to the ledger ${theirs}, and DATABASE_URL is the ledger ${ours}: ` +
  "give each installation a Redis database of its own, or empty this one (FLUSHDB) when the other is gone";
