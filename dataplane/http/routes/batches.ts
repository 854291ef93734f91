/** `/v1/batches`. Source: service.md "Batch", rules 4.9–4.12, dialects.md §A8. */
import type { Batch } from "../../batches/batch.ts";
import { cancelBatch } from "../../batches/cancel.ts";
import { createFromFile, readFileBatchRequest } from "../../batches/create/create-from-file.ts";
import type { BatchContext } from "../../batches/context.ts";
import { findBatch, listBatches } from "../../batches/find.ts";
import { dialectPath } from "../../dialects/dialect.ts";
import { unixSeconds } from "../../lib/unix-time.ts";
import type { AnswerTurns } from "../answer-turns.ts";
import { itemHeaders } from "../item-headers.ts";
import { limits } from "../limits.ts";
import { readFilteredList, readListPage, type Query } from "../list-query.ts";
import { readJsonBody } from "../request-body.ts";
import { longPage } from "../long-page.ts";
import { callerOf, type Routes } from "../route.ts";

type WithId = { Params: { id: string } };

export const batchRoutes =
  (context: BatchContext, turns: AnswerTurns): Routes =>
  (app) => {
    const access = { config: { access: "inference" } } as const;

    app.post("/v1/batches", { config: { ...access.config, needsCredit: true } }, async (request) => {
      const body = await readJsonBody(request, limits.smallBodyBytes);
      const wanted = readFileBatchRequest(body);
      return batchObject(
        await createFromFile(context, callerOf(request), itemHeaders(request.headers), wanted),
      );
    });

    const list = turns.json(async (request, there) => {
      const query = readFilteredList(request.query as Query, undefined, []);
      const { organizationId } = callerOf(request);
      return await readListPage(query, (page) =>
        longPage(
          page,
          (part) => listBatches(context, { organizationId, form: "openai", ...part }),
          () => batchObject,
          there,
        ),
      );
    });
    app.get("/v1/batches", access, list);

    app.get<WithId>("/v1/batches/:id", access, async (request) =>
      batchObject(await findBatch(context, callerOf(request).organizationId, "openai", request.params.id)),
    );

    app.post<WithId>("/v1/batches/:id/cancel", access, async (request) =>
      batchObject(await cancelBatch(context, callerOf(request).organizationId, "openai", request.params.id)),
    );
  };

function batchObject(batch: Batch) {
  const { outcome, endedAt } = batch;
  const endedAs = (wanted: Batch["outcome"]) => (outcome === wanted ? seconds(endedAt) : null);
  const errors = batch.errors === null ? null : (JSON.parse(batch.errors) as unknown[]);
  return {
    id: batch.id,
    object: "batch",
    endpoint: dialectPath[batch.dialect],
    model: batch.model,
    errors: errors === null ? null : { object: "list", data: errors },
    input_file_id: batch.inputFileId,
    completion_window: "24h",
    status: statusOf(batch),
    output_file_id: batch.outputFileId,
    error_file_id: batch.errorFileId,
    created_at: seconds(batch.createdAt),
    in_progress_at: seconds(batch.inProgressAt),
    expires_at: seconds(batch.expiresAt),
    finalizing_at: seconds(batch.finalizingAt),
    completed_at: endedAs("completed"),
    failed_at: endedAs("failed"),
    expired_at: endedAs("expired"),
    cancelling_at: seconds(batch.cancelInitiatedAt),
    cancelled_at: endedAs("cancelled"),
    // `failed` counts what was run and failed; what never ran is in neither (rule 4.11).
    request_counts: { total: batch.total, completed: batch.succeeded, failed: batch.errored },
    usage: {
      input_tokens: batch.inputTokens,
      input_tokens_details: { cached_tokens: batch.cachedTokens },
      output_tokens: batch.outputTokens,
      output_tokens_details: { reasoning_tokens: batch.reasoningTokens },
      total_tokens: batch.inputTokens + batch.outputTokens,
    },
    metadata: JSON.parse(batch.metadata ?? "{}") as Record<string, string>,
  };
}

function statusOf({ state, outcome, cancelInitiatedAt }: Batch): string {
  if (outcome !== null) return outcome;
  return cancelInitiatedAt === null ? state : "cancelling";
}

const seconds = (unixMs: number | null) => (unixMs === null ? null : unixSeconds(unixMs));
