/** Batches of both kinds in one form. */
import { everyPage } from "../api/client.ts";
import type { Batch, MessageBatch } from "../api/schema.ts";
import { inference } from "../session.ts";
import { inputFailures, type FailedLine } from "./batch-lines.ts";
import { contentUrl } from "./download.ts";

/** Batches of each kind that are shown at most: the newest. */
export const MOST_BATCHES = 2000;

const kinds = ["messages", "openai"] as const;

/** A batch of either kind. */
export interface BatchRow {
  readonly id: string;
  readonly kind: (typeof kinds)[number];
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

export async function readBatches(signal: AbortSignal): Promise<BatchRow[]> {
  const [one, other] = await Promise.all([
    everyPage(MOST_BATCHES, (query) => inference("GET /v1/messages/batches", { query, signal })),
    everyPage(MOST_BATCHES, (query) => inference("GET /v1/batches", { query, signal })),
  ]);
  const at = ({ createdAt }: BatchRow) =>
    typeof createdAt === "number" ? createdAt * 1000 : Date.parse(createdAt);
  return [...one.map(messagesRow), ...other.map(openaiRow)].sort((first, second) => at(second) - at(first));
}

/** Whether there may be more of a kind than were read. */
export const isCut = (rows: readonly BatchRow[]): boolean =>
  kinds.some((kind) => rows.filter((row) => row.kind === kind).length >= MOST_BATCHES);
