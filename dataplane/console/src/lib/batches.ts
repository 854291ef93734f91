/** Batches of both kinds in one form. */
import { longPage } from "../api/client.ts";
import type { Batch, MessageBatch } from "../api/schema.ts";
import { inference } from "../session.ts";
import { inputFailures, type FailedLine } from "./batch-lines.ts";
import { contentUrl } from "./download.ts";

/** The most batches of each kind that are read, and shown, at once. */
export const MOST_BATCHES = 2000;

/** A batch of either kind. */
export interface BatchRow {
  readonly id: string;
  readonly kind: "messages" | "openai";
  readonly status: string;
  readonly isRunning: boolean;
  readonly total: number;
  readonly succeeded: number;
  readonly failed: number;
  readonly createdAt: string | number;
  readonly expiresAt: string | number | null;
  /** URL of its results; null before there are any. */
  readonly results: string | null;
  /** URL of its failed lines. */
  readonly failures: string | null;
  /** The errors for which it ran nothing. */
  readonly refused: readonly FailedLine[];
}

const content = (file: string | null): string | null => (file === null ? null : contentUrl(file));

function messagesRow(batch: MessageBatch): BatchRow {
  const { processing, succeeded, errored, canceled, expired } = batch.request_counts;
  const isRunning = batch.processing_status !== "ended";
  const results = isRunning ? null : `/v1/messages/batches/${encodeURIComponent(batch.id)}/results`;
  const failed = errored + canceled + expired;
  return {
    id: batch.id,
    kind: "messages",
    status: isRunning && batch.cancel_initiated_at !== null ? "cancelling" : batch.processing_status,
    isRunning,
    total: processing + succeeded + failed,
    succeeded,
    failed,
    createdAt: batch.created_at,
    expiresAt: batch.expires_at,
    results,
    failures: failed > 0 ? results : null,
    refused: [],
  };
}

const ends = ["completed", "failed", "expired", "cancelled"];

function openaiRow(batch: Batch): BatchRow {
  const { total, completed, failed } = batch.request_counts;
  return {
    id: batch.id,
    kind: "openai",
    status: batch.status,
    isRunning: !ends.includes(batch.status),
    total,
    succeeded: completed,
    failed,
    createdAt: batch.created_at,
    // The API has one completion window, of a day.
    expiresAt: batch.created_at + 86_400,
    results: content(batch.output_file_id),
    failures: content(batch.error_file_id),
    refused: inputFailures(batch.errors),
  };
}

/** Returns the kind of a batch's badge; good: it ended and has results. */
export function badgeOf({ status, isRunning, succeeded, failed }: BatchRow) {
  if (isRunning) return "warn";
  if (status === "cancelled") return "calm";
  return ["failed", "expired"].includes(status) || (failed > 0 && succeeded === 0) ? "bad" : "good";
}

/** Batches of both kinds by their time, the newest first. */
export interface BatchPage {
  readonly rows: readonly BatchRow[];
  /** What `readBatches` reads the older ones after; null: there are none. */
  readonly last: string | null;
}

const at = ({ createdAt }: BatchRow): number =>
  typeof createdAt === "number" ? createdAt * 1000 : Date.parse(createdAt);

interface BatchList {
  /** The id that it begins after; empty: it begins with the newest. */
  readonly after: string;
  readonly rows: readonly BatchRow[];
  /** Whether there are older ones behind its end. */
  readonly isCut: boolean;
}

/** A page with what it takes to renew it. */
export interface HeldPage extends BatchPage {
  /** What it was read after. */
  readonly after: string;
  readonly lists: readonly BatchList[];
  /** When all of it was read, in Unix milliseconds. */
  readonly wholeAt: number;
}

/** How long of batches that have ended only the newest are read again: one that was deleted stays shown until then. */
const WHOLE_MS = 60_000;

/**
 * Reads the batches behind those that an earlier page ended with.
 * @param after its `last`; empty: reads the newest
 * @param before what was read last; of the same page only what may have changed is read again. Null: nothing yet
 */
export async function readBatches(
  after: string,
  before: HeldPage | null,
  signal: AbortSignal,
): Promise<HeldPage> {
  const begins = after.split(",");
  const now = Date.now();
  const held = before?.after === after && now - before.wholeAt < WHOLE_MS ? before : null;
  const lists = await Promise.all(
    readers.map((reader, index) => {
      const read = (most: number) => reader(begins[index] ?? "", most, signal);
      const list = held?.lists[index];
      return list === undefined ? read(MOST_BATCHES) : renewed(list, read);
    }),
  );
  return { ...pageOf(lists), after, lists, wholeAt: held?.wholeAt ?? now };
}

type ReadList = (after: string, most: number, signal: AbortSignal) => Promise<BatchList>;
const readers: readonly ReadList[] = [
  async (after, most, signal) => {
    const page = await longPage(
      most,
      (query) => inference("GET /v1/messages/batches", { query, signal }),
      after,
    );
    return { after, rows: page.data.map(messagesRow), isCut: page.has_more };
  },
  async (after, most, signal) => {
    const page = await longPage(most, (query) => inference("GET /v1/batches", { query, signal }), after);
    return { after, rows: page.data.map(openaiRow), isCut: page.has_more };
  },
];

/** Batches that are read beyond the last that runs: new ones push it down. */
const ROOM = 20;

/**
 * Reads of a list what may have changed: from its begin to the last batch that runs, and what is new.
 * @param read reads the list from its begin
 */
export async function renewed(
  list: BatchList,
  read: (most: number) => Promise<BatchList>,
): Promise<BatchList> {
  const head = await read(Math.min(MOST_BATCHES, list.rows.findLastIndex((row) => row.isRunning) + 1 + ROOM));
  if (!head.isCut) return head;
  const meets = list.rows.findIndex(({ id }) => id === head.rows.at(-1)?.id);
  if (meets < 0) return await read(MOST_BATCHES);
  const rows = [...head.rows, ...list.rows.slice(meets + 1)];
  return {
    ...list,
    rows: rows.slice(0, MOST_BATCHES),
    isCut: list.isCut || rows.length > MOST_BATCHES,
  };
}

/**
 * Merges lists of batches. Where one of them is cut, what is older than its end waits for the next page: else batches of one kind
 * would stand among those of another that are hours older.
 */
export function pageOf(lists: readonly BatchList[]): BatchPage {
  const ends = lists.flatMap(({ rows, isCut }) => (isCut ? rows.slice(-1) : []));
  const oldest = Math.max(...ends.map(at), -Infinity);
  const shown = lists.map(({ after, rows }) => {
    const next = rows.findIndex((row) => at(row) < oldest);
    return [after, next < 0 ? rows : rows.slice(0, next)] as const;
  });
  return {
    rows: shown.flatMap(([, rows]) => rows).sort((one, other) => at(other) - at(one)),
    last: ends.length === 0 ? null : shown.map(([after, rows]) => rows.at(-1)?.id ?? after).join(","),
  };
}
