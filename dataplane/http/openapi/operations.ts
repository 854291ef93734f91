/** Every operation of the service, under the method and URL that its route has. */
import { z } from "zod";
import { exportFormats, exportTypes } from "../../reports/focus/export.ts";
import { MAX_LIMIT, MAX_SHORT_LIMIT, USUAL_LIMIT } from "../list-query.ts";
import { USUAL_BUCKETS } from "../../reports/parameters.ts";
import * as admin from "./admin-schemas.ts";
import * as reports from "./report-schemas.ts";
import * as schemas from "./schemas.ts";

export interface ApiOperation {
  /** True: needs no key, like all that is not under /v1/. */
  readonly keyless?: true;
  readonly summary: string;
  readonly query?: z.ZodObject;
  readonly body?: { readonly type: "application/json" | "multipart/form-data"; readonly schema: z.ZodType };
  readonly answer: { readonly type: string | readonly string[]; readonly schema: z.ZodType | null };
  /** `stream: true` in the body: the answer is a stream of server-sent events. */
  readonly streams?: true;
}

const json = (schema: z.ZodType) => ({ type: "application/json", schema }) as const;

const order = z.enum(["asc", "desc"]).default("desc").optional();
/** `unlimited`: what the list holds without a limit, where that is not a page of the usual length. */
const listQuery = (maxLimit: number, unlimited?: string) => {
  const limit = z.int().min(1).max(maxLimit);
  return z.object({
    limit:
      unlimited === undefined
        ? limit.default(USUAL_LIMIT).optional()
        : limit.optional().describe(`Default: ${unlimited}`),
    after: z.string().optional().describe("Id of the last object of the previous page"),
    after_id: z.string().optional(),
    before_id: z.string().optional(),
    page: z.string().optional().describe("`next_page` of the previous page"),
    order,
  });
};
const filesQuery = listQuery(MAX_LIMIT).extend({
  purpose: z.string().optional(),
  ids: z.array(z.string()).nullish(),
});

const moment = z.union([
  z.string().describe("ISO 8601 date-time with any offset, or YYYY-MM-DD"),
  z.int().describe("Unix seconds"),
]);
const start = moment.optional().describe("Default: 7 days ago. Snaps down to a whole UTC bucket");
const end = moment.optional().describe("Exclusive. Default: now");
const pages = (maxLimit: number) => ({
  limit: z.int().min(1).max(maxLimit).default(USUAL_BUCKETS).optional().describe("Buckets of a page"),
  page: z.int().min(1).default(1).optional().describe("`next_page` of the page before"),
});
const onlyPage = {
  limit: z.int().min(1).optional().describe("Changes nothing: all buckets stand on one page"),
  page: z.int().min(1).default(1).optional().describe("Past the first there is nothing"),
};
const width = z.enum(["1d", "1h"]).default("1d").optional();
const ids = z.array(z.string()).optional().describe("Repeated, separated by commas, or as `name[]`");
const groups = (...names: string[]) =>
  z
    .array(z.string().regex(new RegExp(`^(?:${names.join("|")}|tag:.+)$`)))
    .optional()
    .describe("`tag:NAME`: by one tag");
const tags = z
  .record(z.string(), z.string())
  .optional()
  .describe("`tags[NAME]=value`: what carries this tag");
/** Filters of every report; `readFilters` in reports/filters.ts reads them. */
const filters = {
  models: ids,
  api_key_ids: ids,
  user_ids: ids.describe(
    "People, whose ids begin with `usr_`; repeated, separated by commas, or as `name[]`",
  ),
  project_ids: ids.describe(
    "Repeated, separated by commas, or as `name[]`; `default` is the default project",
  ),
  service_tiers: ids,
  context_window: z.array(z.int().min(0)).optional().describe("In tokens"),
  batch: z.boolean().optional(),
  tags,
};

export const operations: Readonly<Record<string, ApiOperation>> = {
  "POST /v1/messages": {
    summary: "Ask a model, in the Messages dialect",
    body: json(schemas.messagesRequest),
    answer: json(schemas.message),
    streams: true,
  },
  "POST /v1/messages/count_tokens": {
    summary: "Count the input tokens of a request, free of charge",
    body: json(schemas.countRequestBody),
    answer: json(schemas.tokenCount),
  },
  "POST /v1/chat/completions": {
    summary: "Ask a model, in the Chat Completions dialect",
    body: json(schemas.chatRequest),
    answer: json(schemas.chatCompletion),
    streams: true,
  },
  "POST /v1/responses": {
    summary: "Ask a model, in the Responses dialect",
    body: json(schemas.responsesRequest),
    answer: json(schemas.response),
    streams: true,
  },
  "GET /v1/models": {
    summary: "List the models",
    query: listQuery(MAX_LIMIT, `all; ${USUAL_LIMIT} with \`anthropic-version\``),
    answer: json(schemas.modelList),
  },
  "GET /v1/models/*": { summary: "One model; its id may hold slashes", answer: json(schemas.model) },
  "GET /v1/key": { summary: "The key that asks", answer: json(admin.ownKey) },
  "POST /v1/files": {
    summary: "Upload a file",
    body: { type: "multipart/form-data", schema: schemas.upload },
    answer: json(schemas.file),
  },
  "GET /v1/files": { summary: "List files", query: filesQuery, answer: json(schemas.fileList) },
  "GET /v1/files/:id": { summary: "One file", answer: json(schemas.file) },
  "DELETE /v1/files/:id": { summary: "Delete a file", answer: json(schemas.deletedFile) },
  "GET /v1/files/:id/content": {
    summary: "A file's bytes",
    answer: { type: "application/octet-stream", schema: null },
  },
  "POST /v1/messages/batches": {
    summary: "Create a batch of Messages requests",
    body: json(schemas.newMessageBatch),
    answer: json(schemas.messageBatchBody),
  },
  "GET /v1/messages/batches": {
    summary: "List message batches",
    query: listQuery(MAX_LIMIT),
    answer: json(schemas.messageBatchList),
  },
  "GET /v1/messages/batches/:id": { summary: "One message batch", answer: json(schemas.messageBatchBody) },
  "DELETE /v1/messages/batches/:id": {
    summary: "Delete a message batch that has ended",
    answer: json(schemas.messageBatchBody),
  },
  "POST /v1/messages/batches/:id/cancel": {
    summary: "Cancel what a message batch has not begun",
    answer: json(schemas.messageBatchBody),
  },
  "GET /v1/messages/batches/:id/results": {
    summary: "The results of an ended message batch, one JSON object a line",
    answer: { type: "application/jsonl", schema: null },
  },
  "POST /v1/batches": {
    summary: "Create a batch from an uploaded file of requests",
    body: json(schemas.newBatch),
    answer: json(schemas.batch),
  },
  "GET /v1/batches": {
    summary: "List batches",
    query: listQuery(MAX_LIMIT),
    answer: json(schemas.batchList),
  },
  "GET /v1/batches/:id": { summary: "One batch", answer: json(schemas.batch) },
  "POST /v1/batches/:id/cancel": { summary: "Cancel a batch", answer: json(schemas.batch) },
  "GET /v1/organizations/me": { summary: "The organization of the key", answer: json(admin.organization) },
  "GET /v1/organizations/:id/sign_in": {
    summary: "How people of an organization sign in to the console at their provider",
    keyless: true,
    answer: json(admin.consoleSignIn),
  },
  "GET /v1/organizations/api_keys": {
    summary: "List the organization's keys",
    query: listQuery(MAX_SHORT_LIMIT).extend({
      status: z.enum(["active", "inactive"]).nullish(),
      workspace_id: z.string().nullish(),
      created_by_user_id: z.string().nullish(),
    }),
    answer: json(admin.apiKeyList),
  },
  "POST /v1/organizations/api_keys": {
    summary: "Make a key in the default project",
    body: json(admin.keyToMake),
    answer: json(admin.newApiKey),
  },
  "GET /v1/organizations/api_keys/:id": { summary: "One key", answer: json(admin.apiKey) },
  "POST /v1/organizations/api_keys/:id": {
    summary: "Rename, deactivate or activate a key, or change when it expires or its limits",
    body: json(admin.keyChange),
    answer: json(admin.apiKey),
  },
  "GET /v1/organizations/usage_report/messages": {
    summary: "Usage by day or hour, in the first dialect's form",
    query: z.object({
      starting_at: start,
      ending_at: end,
      bucket_width: width,
      group_by: groups("api_key_id", "workspace_id", "model", "service_tier", "context_window"),
      ...filters,
      workspace_ids: ids.describe("The same as project_ids"),
      ...pages(1000),
    }),
    answer: json(reports.messagesUsageReport),
  },
  "GET /v1/organizations/cost_report": {
    summary: "What was charged, in the first dialect's form",
    query: z.object({
      starting_at: start,
      ending_at: end,
      group_by: groups("description"),
      ...filters,
      ...onlyPage,
    }),
    answer: json(reports.costReportBody),
  },
  "GET /v1/organization/projects": {
    summary: "List the organization's projects",
    query: listQuery(MAX_LIMIT, "all").extend({ include_archived: z.boolean().default(false).optional() }),
    answer: json(admin.projectList),
  },
  "POST /v1/organization/projects/:project": {
    summary: "Change the limits that a project's keys share",
    body: json(admin.projectChange),
    answer: json(admin.project),
  },
  "GET /v1/organization/projects/:project/api_keys": {
    summary: "List a project's keys",
    query: listQuery(MAX_LIMIT).extend({
      owner_project_access: z
        .enum(["active", "inactive", "any"])
        .optional()
        .describe("Every owner has access: `inactive` finds none"),
    }),
    answer: json(admin.projectKeyList),
  },
  "POST /v1/organization/projects/:project/api_keys": {
    summary: "Make a key in a project",
    body: json(admin.keyToMake),
    answer: json(admin.newProjectKey),
  },
  "GET /v1/organization/projects/:project/api_keys/:id": {
    summary: "One key of a project",
    answer: json(admin.projectKey),
  },
  "POST /v1/organization/projects/:project/api_keys/:id": {
    summary: "Rename, deactivate or activate a key, or change when it expires or its limits",
    body: json(admin.keyChange),
    answer: json(admin.projectKey),
  },
  "DELETE /v1/organization/projects/:project/api_keys/:id": {
    summary: "Delete a key; its usage stays",
    answer: json(admin.deletedProjectKey),
  },
  "GET /v1/organization/credits": {
    summary: "Granted, used, held and available credits",
    answer: json(admin.creditsState),
  },
  "GET /v1/organization/configuration": {
    summary: "The objects that the organization lives under, in the generation that is served",
    query: listQuery(MAX_LIMIT, "all"),
    answer: json(admin.configurationList),
  },
  "GET /v1/organization/usage/completions": {
    summary: "Usage by day or hour, in the second dialect's form",
    query: z.object({
      start_time: start,
      end_time: end,
      bucket_width: width,
      group_by: groups("project_id", "api_key_id", "model", "batch", "service_tier"),
      ...filters,
      ...pages(10_000),
    }),
    answer: json(reports.completionsUsageBody),
  },
  "GET /v1/organization/costs": {
    summary: "What was charged, in the second dialect's form",
    query: z.object({
      start_time: start,
      end_time: end,
      bucket_width: z.literal("1d").optional(),
      group_by: groups("line_item"),
      ...filters,
      ...onlyPage,
    }),
    answer: json(reports.costsBody),
  },
  "GET /v1/organization/costs/export": {
    summary: "A month's charges as a file of FOCUS 1.2",
    query: z.object({
      format: z.enum(exportFormats),
      month: z
        .string()
        .regex(/^\d{4}-\d{2}$/)
        .describe("Of UTC, such as 2026-11"),
    }),
    answer: { type: exportTypes, schema: null },
  },
  "GET /v1/organization/users": {
    summary: "People who came with tokens, the newest first",
    query: listQuery(MAX_SHORT_LIMIT),
    answer: json(admin.userList),
  },
  "GET /v1/organization/users/:id": {
    summary: "One of them; `me` stands for who asks",
    answer: json(admin.user),
  },
  "GET /v1/organization/requests": {
    summary: "What became of requests for inference, newest first",
    query: listQuery(MAX_SHORT_LIMIT).extend({
      from: z.int().optional().describe("Unix seconds"),
      to: z.int().optional().describe("Unix seconds, exclusive"),
      api_key_id: z.string().optional(),
      project_id: z.string().optional(),
      model: z.string().optional().describe("Public model id"),
      status: z.int().min(100).max(599).optional().describe("HTTP status; 499: the client left"),
      code: z.string().optional().describe("An `error_code`"),
    }),
    answer: json(admin.requestRecordList),
  },
  "GET /v1/organization/requests/:id": {
    summary: "What became of one request, whatever it asked for",
    answer: json(admin.requestRecordBody),
  },
  "GET /openapi.json": {
    summary: "This document",
    answer: json(z.looseObject({ openapi: z.string() })),
  },
};
