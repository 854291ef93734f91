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

/** Reads the batches behind those that an earlier page ended with. @param after its `last`; empty: reads the newest */
export async function readBatches(after: string, signal: AbortSignal): Promise<BatchPage> {
  const [afterOne = "", afterOther = ""] = after.split(",");
  const [one, other] = await Promise.all([
    longPage(MOST_BATCHES, (query) => inference("GET /v1/messages/batches", { query, signal }), afterOne),
    longPage(MOST_BATCHES, (query) => inference("GET /v1/batches", { query, signal }), afterOther),
  ]);
  return pageOf([
    { after: afterOne, rows: one.data.map(messagesRow), isCut: one.has_more },
    { after: afterOther, rows: other.data.map(openaiRow), isCut: other.has_more },
  ]);
}

interface BatchList {
  /** The id that it begins after; empty: it begins with the newest. */
  readonly after: string;
  readonly rows: readonly BatchRow[];
  /** Whether there are older ones behind its end. */
  readonly isCut: boolean;
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
