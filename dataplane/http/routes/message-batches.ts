/** `/v1/messages/batches`. Source: service.md "Message batch", "Batches", rules 4.6–4.8, dialects.md §A7. */
import type { FastifyRequest } from "fastify";
import { RETENTION_MS, type Batch } from "../../batches/batch.ts";
import { cancelBatch } from "../../batches/cancel.ts";
import { createFromRequests } from "../../batches/create/create-from-requests.ts";
import { deleteBatch } from "../../batches/delete.ts";
import type { BatchContext } from "../../batches/context.ts";
import { findBatch, listBatches } from "../../batches/find.ts";
import { resultLines } from "../../batches/results.ts";
import { ApiError } from "../../lib/api-error.ts";
import type { AnswerTurns } from "../answer-turns.ts";
import { itemHeaders } from "../item-headers.ts";
import { streamBody } from "../body-stream.ts";
import { limits } from "../limits.ts";
import { readFilteredList, readListPage, type Query } from "../list-query.ts";
import { requireJsonType } from "../request-body.ts";
import { longPage } from "../long-page.ts";
import { callerOf, type Routes } from "../route.ts";
import type { PieceReader } from "../../lib/piece-reader.ts";

type WithId = { Params: { id: string } };

/** `publicUrl`: the address that clients use, without a slash at its end. */
export const messageBatchRoutes =
  (context: BatchContext, turns: AnswerTurns, publicUrl: () => string): Routes =>
  (app) => {
    const access = { config: { access: "inference" } } as const;
    const { pool, clock } = context;
    const show = (batch: Batch) => messageBatch(batch, publicUrl(), clock.now());
    const find = (request: FastifyRequest<WithId>) =>
      findBatch(context, callerOf(request).organizationId, "messages", request.params.id);

    app.post("/v1/messages/batches", { config: { ...access.config, needsCredit: true } }, async (request) => {
      requireJsonType(request.raw);
      const body = streamBody(request.raw, limits.batchBodyBytes);
      const headers = itemHeaders(request.headers);
      return show(await createFromRequests(context, callerOf(request), headers, body, request.bodyLease));
    });

    const list = turns.json(async (request, there) => {
      const query = readFilteredList(request.query as Query, undefined, []);
      const { organizationId } = callerOf(request);
      return await readListPage(query, (page) =>
        longPage(
          page,
          (part) => listBatches(context, { organizationId, form: "messages", ...part }),
          () => show,
          there,
        ),
      );
    });
    app.get("/v1/messages/batches", access, list);

    app.get<WithId>("/v1/messages/batches/:id", access, async (request) => show(await find(request)));

    app.delete<WithId>("/v1/messages/batches/:id", access, async (request) =>
      show(await deleteBatch(context, callerOf(request).organizationId, request.params.id)),
    );

    app.post<WithId>("/v1/messages/batches/:id/cancel", access, async (request) =>
      show(await cancelBatch(context, callerOf(request).organizationId, "messages", request.params.id)),
    );

    app.get<WithId>("/v1/messages/batches/:id/results", access, async (request, reply) => {
      const batch = await find(request);
      if (batch.state !== "ended") {
        throw new ApiError(
          "invalid_request",
          "The batch is still in progress: its results come with its end.",
        );
      }
      if (archivedAt(batch, clock.now()) !== null) {
        throw new ApiError("not_found", "The results of this batch are no longer kept.");
      }
      reply.type("application/jsonl").header("x-content-type-options", "nosniff");
      const lines = (reader: PieceReader) => resultLines(pool, batch, "all", reader);
      return reply.send(turns.download(request, reply, lines));
    });
  };

/** Everything counts as processing until the whole batch has ended (rule 4.6). */
function messageBatch(batch: Batch, publicUrl: string, now: number) {
  const ended = batch.state === "ended";
  const archived = archivedAt(batch, now);
  return {
    id: batch.id,
    type: "message_batch",
    processing_status: ended ? "ended" : "in_progress",
    request_counts: {
      processing: ended ? 0 : batch.total,
      succeeded: ended ? batch.succeeded : 0,
      errored: ended ? batch.errored : 0,
      canceled: ended ? batch.canceled : 0,
      expired: ended ? batch.expired : 0,
    },
    created_at: iso(batch.createdAt),
    expires_at: iso(batch.expiresAt),
    ended_at: iso(batch.endedAt),
    cancel_initiated_at: iso(batch.cancelInitiatedAt),
    archived_at: iso(archived),
    results_url: ended && archived === null ? `${publicUrl}/v1/messages/batches/${batch.id}/results` : null,
  };
}

/** When the batch's results were given up; true to the minute, however late the rows are deleted. */
function archivedAt({ endedAt, archivedAt: stored }: Batch, now: number): number | null {
  if (stored !== null || endedAt === null) return stored;
  return now >= endedAt + RETENTION_MS ? endedAt + RETENTION_MS : null;
}

const iso = (unixMs: number | null) => (unixMs === null ? null : new Date(unixMs).toISOString());
