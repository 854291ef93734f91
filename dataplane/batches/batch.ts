/**
 * A batch as it is stored: one engine for both forms of the API (service.md "Message batch", "Batch"). The routes define
 * what a client sees of it.
 *
 * States: creating → in_progress (Messages form), validating → in_progress | ended (failed) (file form),
 * in_progress → finalizing → ended. A cancel or the deadline changes what becomes of waiting items, not the state:
 * the batch ends when nothing of it runs any more.
 */
import { sql } from "slonik";
import { z } from "zod";
import { dialects } from "../dialects/dialect.ts";
import { bodyLimits } from "../lib/body-limits.ts";
import { DAY_MS } from "../lib/clock.ts";

/** A batch ends this long after it was made, whatever has not run by then (service.md "Limits"). */
export const WINDOW_MS = DAY_MS;
/** Results are kept for this long after the end (service.md "Limits"). */
export const RETENTION_MS = 29 * DAY_MS;
/** A batch is shown for this long after its end, from `RETENTION_MS` on without results. Then its row is deleted. */
export const SHOWN_MS = 60 * DAY_MS;
/** Batches of one organization that have not ended. */
export const MAX_OPEN_BATCHES = 2_000;
/** Batch rows of one organization, ended and deleted batches included. */
export const MAX_KEPT_BATCHES = 100_000;
export const MAX_REQUESTS = 10_000;
/** Bytes of all requests of a batch as received: a request body or an input file. */
export const MAX_BATCH_BYTES = 256 * 1024 * 1024;
/** Bytes of one request (rule 1.17). */
export const MAX_ITEM_BYTES = bodyLimits.bytes;

export const batchForms = ["messages", "openai"] as const;
export type BatchForm = (typeof batchForms)[number];

/** How an item may be over. */
export const itemEnds = ["succeeded", "errored", "canceled", "expired"] as const;

export const batchSchema = z.object({
  id: z.string(),
  organizationId: z.string(),
  projectId: z.string(),
  keyId: z.string(),
  form: z.enum(batchForms),
  dialect: z.enum(dialects),
  state: z.enum(["creating", "validating", "in_progress", "finalizing", "ended"]),
  outcome: z.enum(["completed", "failed", "expired", "cancelled"]).nullable(),
  headers: z.string(),
  /** JSON text. */
  metadata: z.string().nullable(),
  model: z.string().nullable(),
  inputFileId: z.string().nullable(),
  outputFileId: z.string().nullable(),
  errorFileId: z.string().nullable(),
  outputSeconds: z.number().nullable(),
  /** JSON text of an array. */
  errors: z.string().nullable(),
  total: z.number(),
  succeeded: z.number(),
  errored: z.number(),
  canceled: z.number(),
  expired: z.number(),
  inputTokens: z.bigint().transform(Number),
  cachedTokens: z.bigint().transform(Number),
  outputTokens: z.bigint().transform(Number),
  reasoningTokens: z.bigint().transform(Number),
  /** Times are Unix milliseconds. */
  createdAt: z.number(),
  expiresAt: z.number(),
  inProgressAt: z.number().nullable(),
  finalizingAt: z.number().nullable(),
  cancelInitiatedAt: z.number().nullable(),
  overdue: z.boolean(),
  endedAt: z.number().nullable(),
  archivedAt: z.number().nullable(),
  /** The claim of the worker that validates or finalizes the batch. */
  claim: z.string().nullable(),
});
export type Batch = Readonly<z.infer<typeof batchSchema>>;

/** Bytes of a batch's metadata and input errors; either may be some 100 KiB. */
export const attachedBytes = sql.fragment`
  (coalesce(octet_length(metadata), 0) + coalesce(octet_length(errors), 0))
`;

/** Condition of ended batches whose results nobody can read any more: they are in files, too old or deleted. */
export const unreadableResults = sql.fragment`
  (batch.state = 'ended' and (batch.form = 'openai' or batch.archived_at is not null or batch.deleted_at is not null))
`;

export const batchColumns = sql.fragment`
  batch.id, batch.organization_id as "organizationId", batch.project_id as "projectId", batch.key_id as "keyId",
  batch.form, batch.dialect, batch.state, batch.outcome, batch.headers, batch.metadata, batch.model,
  batch.input_file_id as "inputFileId", batch.output_file_id as "outputFileId",
  batch.error_file_id as "errorFileId", batch.output_seconds as "outputSeconds", batch.errors,
  batch.total, batch.succeeded, batch.errored, batch.canceled, batch.expired,
  batch.input_tokens as "inputTokens", batch.cached_tokens as "cachedTokens",
  batch.output_tokens as "outputTokens", batch.reasoning_tokens as "reasoningTokens",
  batch.created_at as "createdAt", batch.expires_at as "expiresAt", batch.in_progress_at as "inProgressAt",
  batch.finalizing_at as "finalizingAt", batch.cancel_initiated_at as "cancelInitiatedAt", batch.overdue,
  batch.ended_at as "endedAt", batch.archived_at as "archivedAt", batch.claim
`;
