/** `/v1/organization/requests`: what became of an organization's requests (rule 14.2). */
import { creditsText } from "../../billing/credits.ts";
import { projectIdOf } from "../../identity/projects.ts";
import { ApiError } from "../../lib/api-error.ts";
import { LATEST_SECOND } from "../../lib/clock.ts";
import { invalidParameter, readGiven, readInteger } from "../../lib/query.ts";
import { tagsOf } from "../../lib/tags.ts";
import { unixSeconds } from "../../lib/unix-time.ts";
import { storedModel } from "../../requests/stored-form.ts";
import { findRequest, listRequests, type KeptRequest } from "../../requests/read-records.ts";
import type { Reads } from "../../store/reads.ts";
import { listEnvelope, MAX_SHORT_LIMIT, readFilteredList, type Query } from "../list-query.ts";
import { longPage } from "../long-page.ts";
import { callerOf, type Routes } from "../route.ts";
import type { AnswerTurns } from "../answer-turns.ts";
import { pageByIds, pathId } from "./parameters.ts";

const REQUEST_FILTERS = ["api_key_id", "model", "project_id", "code", "status", "from", "to"];

export interface RecordNeeds {
  readonly reads: Reads;
  readonly turns: AnswerTurns;
  /** 0: none are kept. */
  readonly retentionMs: number;
}

export const requestRecordRoutes =
  ({ reads, turns, retentionMs }: RecordNeeds): Routes =>
  (app, { clock }) => {
    const access = { config: { access: "admin" } } as const;
    const oldest = () => clock.now() - retentionMs;

    const list = turns.json(async (request, there) => {
      const { organizationId } = callerOf(request);
      const asked = request.query as Query;
      const query = readFilteredList(asked, MAX_SHORT_LIMIT, REQUEST_FILTERS);
      const keyId = readGiven(asked, "api_key_id");
      const model = readGiven(asked, "model");
      const project = readGiven(asked, "project_id");
      const code = readGiven(asked, "code");
      const status = readInteger(asked, "status", 100, 599);
      const from = readInteger(asked, "from", 0, LATEST_SECOND);
      const to = readInteger(asked, "to", 0, LATEST_SECOND);
      if (from !== null && to !== null && to <= from) throw invalidParameter("to", "to must be after from.");
      return await pageByIds(query, async (page) => {
        // A value that no row can hold matches nothing, and never reaches the database.
        const texts = [keyId, model, project, code].filter((text) => text !== null);
        if (texts.some((text) => text.includes("\0") || !text.isWellFormed())) return listEnvelope([], false);
        const database = await reads.of(organizationId);
        const filter = {
          organizationId,
          keyId,
          projectId: project === null ? null : await projectIdOf(database, organizationId, project),
          model: model === null ? null : storedModel(model),
          status,
          code,
          from: Math.max(oldest(), (from ?? 0) * 1000),
          to: to === null ? null : to * 1000,
        };
        return await longPage(
          page,
          (part) => listRequests(database, filter, part),
          () => shown,
          there,
        );
      });
    });
    app.get("/v1/organization/requests", access, list);

    app.get<{ Params: { id: string } }>("/v1/organization/requests/:id", access, async (request) => {
      const id = pathId(request.params.id);
      const { organizationId } = callerOf(request);
      const found =
        id === null ? null : await findRequest(await reads.of(organizationId), id, organizationId);
      if (found === null || found.acceptedAt < oldest())
        throw new ApiError("not_found", "There is no such request, or it is no longer kept.");
      return shown(found);
    });
  };

/** What the tenant may know: not which upstreams there are, and none of their words. */
function shown(request: KeptRequest) {
  return {
    object: "organization.request",
    id: request.id,
    created_at: unixSeconds(request.acceptedAt),
    api_key_id: request.keyId,
    project_id: request.projectId,
    dialect: request.dialect,
    path: request.path,
    model: request.model,
    status: request.status,
    error_code: request.errorCode,
    streamed: request.streamed,
    first_byte_ms: request.firstByteMs,
    duration_ms: request.durationMs,
    tries: request.tries.map(({ status, fault, ms }) => ({ status, reason: fault, ms })),
    input_tokens: request.inputTokens,
    output_tokens: request.outputTokens,
    credits: creditsText(request.micros),
    tool_calls: Object.values(request.toolCalls ?? {}).reduce((sum, times) => sum + times, 0),
    batch_id: request.batchId,
    tags: tagsOf(request.tags ?? ""),
  };
}
