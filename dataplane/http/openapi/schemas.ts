/**
 * The resources of the service as service.md describes them, for its OpenAPI document. Answers of the three dialects hold more
 * fields than are named here: official clients' supersets. Requests are read by the codecs of `dialects`; their schemas here
 * are what service.md shows. The admin API has files of its own: admin-schemas.ts, report-schemas.ts.
 */
import { z } from "zod";
import { serverToolNames } from "../../dialects/find-server-tool.ts";
import { serverTools } from "../../dialects/server-tools.ts";
import { isoMoment, list, named, tokens, unixMoment } from "./schema-parts.ts";

// Models, files, batches.

const eitherTime = z
  .union([isoMoment, unixMoment])
  .describe("ISO 8601 when a version header is sent, else Unix seconds");
const decimal = z.string().regex(/^\d+(\.\d+)?$/);
const rates = {
  input: decimal,
  output: decimal,
  cache_read: decimal,
  cache_write_5m: decimal,
  cache_write_1h: decimal,
  audio_input: decimal.nullable(),
  audio_output: decimal.nullable(),
  image_output: decimal.nullable(),
};
const longPrompts = z
  .array(z.looseObject({ input_over: z.int(), ...rates }))
  .describe("Of requests whose input exceeds the bound");
const tokenPrices = {
  ...rates,
  tiers: longPrompts,
  service_tiers: z
    .array(
      z.union([
        z.looseObject({ name: z.string(), multiplier: decimal.describe("So many times the prices") }),
        z.looseObject({ name: z.string(), multiplier: z.null(), ...rates, tiers: longPrompts }),
      ]),
    )
    .describe("What `service_tier`, `speed`, `inference_geo` and `reasoning.mode` may ask for"),
};
const capability = z.looseObject({ supported: z.boolean() });
/** A capability that has parts of its own. */
const parts = z.object({ supported: z.boolean() }).catchall(capability);
/** Fields of a model's entry without a version header. */
const openAIModel = {
  object: z.literal("model").optional(),
  created: unixMoment.optional(),
  owned_by: z.string().optional(),
  shutdown_date: z.null().optional(),
};
/** Fields of a model's entry with a version header. */
const messagesModel = {
  type: z.literal("model").optional(),
  created_at: isoMoment.optional(),
  lifecycle: z.literal("active").optional(),
  line: z.null().optional(),
  deprecated_at: z.null().optional(),
  retires_at: z.null().optional(),
};
export const model = named(
  "Model",
  z.looseObject({
    id: z.string(),
    ...openAIModel,
    ...messagesModel,
    display_name: z.string(),
    max_input_tokens: z.int().describe("Of its context"),
    max_tokens: z.int().describe("Of an answer, the most and the default"),
    capabilities: z.looseObject({
      ...Object.fromEntries(serverToolNames.map((name) => [name, capability])),
      code_execution: z.literal(false),
      skills: z.literal(false),
      batch: capability,
      citations: capability,
      context_management: parts,
      effort: parts,
      image_input: capability,
      pdf_input: capability,
      server_tools: parts,
      structured_outputs: capability,
      thinking: z.looseObject({ supported: z.boolean(), types: z.record(z.string(), capability) }),
      tool_calling: capability,
    }),
    pricing: z
      .looseObject({
        unit: z.literal("credit"),
        per: z.literal(1_000_000).describe("Tokens that a price is for; those of tools are for 1,000 units"),
        ...tokenPrices,
        changes: z
          .array(z.looseObject({ from: isoMoment, ...tokenPrices }))
          .describe("Prices to come, for requests accepted from that moment on"),
        tools: z.looseObject({
          web_search: decimal,
          web_fetch: decimal,
          x_search_post: decimal,
          x_search_profile: decimal,
        }),
      })
      .describe("Extension: what the model costs now"),
  }),
);
export const modelList = named("ModelList", list(model));
export const file = named(
  "File",
  z.looseObject({
    id: z.string(),
    type: z.literal("file"),
    object: z.literal("file"),
    filename: z.string(),
    mime_type: z.string(),
    size_bytes: z.int(),
    bytes: z.int(),
    purpose: z.string(),
    status: z.string(),
    downloadable: z.boolean(),
    created_at: eitherTime.nullable(),
    expires_at: eitherTime.nullable(),
  }),
);
export const fileList = named("FileList", list(file));
export const deletedFile = named("DeletedFile", z.looseObject({ id: z.string(), deleted: z.literal(true) }));
export const upload = named(
  "Upload",
  z.looseObject({
    file: z.string().meta({ contentMediaType: "application/octet-stream" }),
    purpose: z.string().optional(),
  }),
);
export const messageBatchBody = named(
  "MessageBatch",
  z.looseObject({
    id: z.string(),
    type: z.literal("message_batch"),
    processing_status: z.string(),
    request_counts: z.looseObject({
      processing: z.int(),
      succeeded: z.int(),
      errored: z.int(),
      canceled: z.int(),
      expired: z.int(),
    }),
    created_at: isoMoment,
    expires_at: isoMoment,
    ended_at: isoMoment.nullable(),
    cancel_initiated_at: isoMoment.nullable(),
    archived_at: isoMoment.nullable(),
    results_url: z.string().nullable(),
  }),
);
export const messageBatchList = named("MessageBatchList", list(messageBatchBody));
export const batch = named(
  "Batch",
  z.looseObject({
    id: z.string(),
    object: z.literal("batch"),
    endpoint: z.enum(["/v1/chat/completions", "/v1/responses"]),
    completion_window: z.literal("24h"),
    status: z.enum([
      "validating",
      "in_progress",
      "finalizing",
      "cancelling",
      "completed",
      "failed",
      "expired",
      "cancelled",
    ]),
    errors: z
      .looseObject({
        object: z.literal("list"),
        data: z.array(
          z.looseObject({
            code: z.string(),
            message: z.string(),
            param: z.string().nullable(),
            line: z.int().nullable(),
          }),
        ),
      })
      .nullable(),
    input_file_id: z.string(),
    output_file_id: z.string().nullable(),
    error_file_id: z.string().nullable(),
    created_at: unixMoment,
    request_counts: z.looseObject({ total: z.int(), completed: z.int(), failed: z.int() }),
    metadata: z.record(z.string(), z.string()).nullable(),
  }),
);
export const batchList = named("BatchList", list(batch));
const object = z.record(z.string(), z.unknown());
export const newBatch = named(
  "NewBatch",
  z.looseObject({
    input_file_id: z.string(),
    endpoint: z.enum(["/v1/chat/completions", "/v1/responses"]),
    completion_window: z.literal("24h"),
    metadata: object.optional(),
  }),
);

// Inference.

/** The server tools that a dialect's clients may declare, for the reader of the description. */
const declarable = (dialect: "messages" | "responses"): string =>
  `The client's own functions, and server tools: ${serverToolNames.flatMap((name) => serverTools[name][dialect]).join(", ")}`;

export const messagesRequest = named(
  "MessagesRequest",
  z.looseObject({
    model: z.string(),
    max_tokens: z.int().min(1).optional(),
    system: z.union([z.string(), z.array(object)]).optional(),
    messages: z
      .array(z.looseObject({ role: z.string(), content: z.union([z.string(), z.array(object)]) }))
      .min(1),
    tools: z.array(object).optional().describe(declarable("messages")),
    thinking: object.optional(),
    stream: z.boolean().optional(),
  }),
);
export const newMessageBatch = named(
  "NewMessageBatch",
  z.looseObject({
    requests: z
      .array(z.looseObject({ custom_id: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/), params: messagesRequest }))
      .min(1)
      .max(10_000),
  }),
);
export const message = named(
  "Message",
  z.looseObject({
    id: z.string(),
    type: z.literal("message"),
    role: z.literal("assistant"),
    model: z.string(),
    content: z.array(z.looseObject({ type: z.string() })),
    stop_reason: z.string().nullable(),
    stop_sequence: z.string().nullable(),
    usage: z.looseObject({ input_tokens: tokens, output_tokens: tokens }),
  }),
);
export const tokenCount = named("TokenCount", z.looseObject({ input_tokens: tokens }));
export const countRequestBody = named(
  "TokenCountRequest",
  z.looseObject({ model: z.string(), messages: z.array(object).min(1) }),
);
export const chatRequest = named(
  "ChatRequest",
  z.looseObject({
    model: z.string(),
    messages: z.array(z.looseObject({ role: z.string() })).min(1),
    web_search_options: object.optional(),
    tools: z.array(object).optional(),
    tool_choice: z.union([z.string(), object]).optional(),
    max_tokens: z.int().optional(),
    max_completion_tokens: z.int().optional(),
    n: z.int().optional(),
    stream: z.boolean().optional(),
    stream_options: z.looseObject({ include_usage: z.boolean().optional() }).optional(),
  }),
);
export const chatCompletion = named(
  "ChatCompletion",
  z.looseObject({
    id: z.string(),
    object: z.literal("chat.completion"),
    model: z.string(),
    choices: z.array(
      z.looseObject({ index: z.int(), message: object, finish_reason: z.string().nullable() }),
    ),
    usage: z.looseObject({ prompt_tokens: tokens, completion_tokens: tokens, total_tokens: tokens }),
  }),
);
export const responsesRequest = named(
  "ResponsesRequest",
  z.looseObject({
    model: z.string(),
    input: z.union([z.string(), z.array(object)]),
    tools: z.array(object).optional().describe(declarable("responses")),
    tool_choice: z.union([z.string(), object]).optional(),
    max_tool_calls: z.int().min(1).optional(),
    max_output_tokens: z.int().optional(),
    stream: z.boolean().optional(),
  }),
);
export const response = named(
  "Response",
  z.looseObject({
    id: z.string(),
    object: z.literal("response"),
    status: z.string(),
    incomplete_details: z.looseObject({ reason: z.string() }).nullable(),
    model: z.string(),
    output: z.array(z.looseObject({ type: z.string() })),
    usage: z.looseObject({ input_tokens: tokens, output_tokens: tokens, total_tokens: tokens }).nullable(),
  }),
);
