/**
 * The resources of the service as service.md describes them, for its OpenAPI document. Answers may hold more fields
 * than are named here: official clients' supersets. Requests are read by the codecs of `dialects`; what stands here
 * of them is what service.md shows.
 */
import { z } from "zod";
import { serverToolNames } from "../../dialects/find-server-tool.ts";
import { serverTools } from "../../dialects/server-tools.ts";
import { limitsForm } from "../admin/limits.ts";
import { limitPeriods } from "../../config/schema.ts";

/** Schemas with a name: the document's components. */
export const components = z.registry<{ readonly id: string }>();
const named = <Schema extends z.ZodType>(id: string, schema: Schema): Schema => {
  components.add(schema, { id });
  return schema;
};

const isoTime = z.string().meta({ format: "date-time" });
const unixTime = z.int().describe("Unix seconds");
const tokens = z.int().min(0);
/** One page of a list; every SDK finds its own fields in it. */
const list = <Item extends z.ZodType>(item: Item) =>
  z.looseObject({
    object: z.literal("list"),
    data: z.array(item),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
    has_more: z.boolean(),
    next_page: z.string().nullable(),
  });

export const messagesError = named(
  "MessagesError",
  z.looseObject({
    type: z.literal("error"),
    error: z.looseObject({ type: z.string(), message: z.string() }),
    request_id: z.string(),
  }),
);
export const openAIError = named(
  "OpenAIError",
  z.looseObject({
    error: z.looseObject({
      message: z.string(),
      type: z.string(),
      param: z.string().nullable(),
      code: z.string().nullable(),
    }),
  }),
);

// Admin.

export const organization = named(
  "Organization",
  z.looseObject({ id: z.string(), type: z.literal("organization"), name: z.string() }),
);
export const consoleSignIn = named(
  "ConsoleSignIn",
  z.looseObject({
    type: z.literal("console_sign_in"),
    organization_id: z.string(),
    issuer: z.string(),
    client_id: z.string(),
    scopes: z.array(z.string()).describe("`openid` is the first"),
    audience: z.string().nullable().describe("The parameter `audience` to send"),
    resource: z.string().nullable().describe("The parameter `resource` to send (RFC 8707)"),
  }),
);
const declaredIn = z
  .string()
  .nullable()
  .describe(
    "`Organization NAMESPACE/NAME` where a resource declares the key, which is then changed only there",
  );
const credits = z.string().describe("Decimal number of credits");
const limitsShown = named(
  "Limits",
  z.looseObject({
    credits: z.looseObject({ amount: credits, per: z.enum(limitPeriods) }).nullable(),
    models: z.array(z.string()).nullable(),
    requests_per_minute: z.int().nullable(),
    tokens_per_minute: z.int().nullable(),
    concurrent_requests: z.int().nullable(),
  }),
);
const standing = named(
  "Standing",
  z.looseObject({
    scope: z.enum(["key", "project"]),
    per: z.enum(limitPeriods),
    amount: credits,
    spent: credits,
    held: credits,
    left: credits,
    begins_anew_at: isoTime.nullable(),
  }),
);
const limited = {
  limits: limitsShown.nullable().describe("Its own; null: none"),
  standing: z.array(standing).describe("How each credit limit stands that holds"),
};
const limitsAsked = named("LimitsChange", limitsForm);
const keyFields = {
  id: z.string(),
  type: z.literal("api_key"),
  name: z.string(),
  workspace_id: z.string(),
  created_at: isoTime,
  created_by: z.looseObject({ id: z.string(), type: z.literal("user") }),
  partial_key_hint: z.string(),
  status: z.enum(["active", "inactive"]),
  last_used_at: isoTime.nullable(),
  declared_in: declaredIn,
  expires_at: isoTime.nullable(),
  ...limited,
};
export const apiKey = named("ApiKey", z.looseObject(keyFields));
export const newApiKey = named(
  "NewApiKey",
  z.looseObject({ ...keyFields, key: z.string().describe("The plaintext; shown only here") }),
);
export const apiKeyList = named("ApiKeyList", list(apiKey));
const expiry = z
  .union([isoTime, unixTime])
  .nullable()
  .optional()
  .describe("From then on the key answers 401; null: never");
export const keyToMake = named(
  "NewKey",
  z.strictObject({
    name: z.string().min(1).max(500),
    expires_at: expiry,
    limits: limitsAsked.nullable().optional(),
  }),
);
export const keyChange = named(
  "KeyChange",
  z.strictObject({
    name: z.string().min(1).max(500).nullable().optional(),
    status: z.enum(["active", "inactive"]).nullable().optional(),
    expires_at: expiry,
    limits: limitsAsked.nullable().optional(),
  }),
);
export const projectChange = named(
  "ProjectChange",
  z.strictObject({ limits: limitsAsked.nullable().optional() }),
);
export const ownKey = named(
  "Key",
  z.looseObject({
    object: z.literal("key"),
    id: z.string(),
    name: z.string(),
    project_id: z.string(),
    created_at: isoTime,
    expires_at: isoTime.nullable(),
    ...limited,
  }),
);
export const project = named(
  "Project",
  z.looseObject({
    id: z.string(),
    object: z.literal("organization.project"),
    name: z.string(),
    created_at: unixTime,
    status: z.enum(["active", "archived"]),
    limits_declared_in: z
      .string()
      .nullable()
      .describe(
        "`Organization NAMESPACE/NAME` where a resource declares the limits, which then change only there",
      ),
    ...limited,
  }),
);
export const projectList = named("ProjectList", list(project));
const projectKeyFields = {
  object: z.literal("organization.project.api_key"),
  id: z.string(),
  name: z.string(),
  redacted_value: z.string(),
  created_at: unixTime,
  last_used_at: unixTime.nullable(),
  declared_in: declaredIn,
  expires_at: unixTime.nullable(),
  ...limited,
  owner: z.looseObject({ type: z.string() }),
};
export const projectKey = named("ProjectApiKey", z.looseObject(projectKeyFields));
export const newProjectKey = named(
  "NewProjectApiKey",
  z.looseObject({ ...projectKeyFields, value: z.string().describe("The plaintext; shown only here") }),
);
export const projectKeyList = named("ProjectApiKeyList", list(projectKey));
export const deletedProjectKey = named(
  "DeletedProjectApiKey",
  z.looseObject({
    object: z.literal("organization.project.api_key.deleted"),
    id: z.string(),
    deleted: z.literal(true),
  }),
);
export const creditsState = named(
  "Credits",
  z.looseObject({
    object: z.literal("organization.credits"),
    granted: credits,
    used: credits,
    held: credits,
    available: credits,
    storage: z
      .looseObject({ bytes: z.int(), max_bytes: z.int(), files: z.int(), max_files: z.int() })
      .describe("What is kept of files, requests of batches and results, and what may be"),
    grants: z.array(
      z.looseObject({
        name: z.string(),
        amount: credits,
        granted_at: isoTime,
        source: z.enum(["declared", "command"]),
      }),
    ),
  }),
);
export const configurationList = named(
  "ConfigurationList",
  list(
    named(
      "ConfigurationObject",
      z.looseObject({
        id: z.string(),
        object: z.literal("organization.configuration"),
        kind: z.enum(["Organization", "ModelRoute", "ToolPolicy", "PriceTable"]),
        namespace: z.string(),
        name: z.string(),
        generation: z.int(),
        conditions: z.array(
          z.looseObject({ type: z.string(), status: z.string(), reason: z.string(), message: z.string() }),
        ),
      }),
    ),
  ),
);

// Requests.

export const requestRecordBody = named(
  "Request",
  z.looseObject({
    object: z.literal("organization.request"),
    id: z.string(),
    created_at: unixTime,
    api_key_id: z.string().nullable(),
    project_id: z.string().nullable(),
    dialect: z.string().nullable().describe("messages, chat, responses; null: it asked for no inference"),
    path: z.enum(["relay", "convert", "tools"]).nullable(),
    model: z.string().nullable(),
    status: z.int().describe("HTTP status; 499: the client left before the end"),
    error_code: z.string().nullable().describe("As OpenAI-style errors name it, in every dialect"),
    streamed: z.boolean(),
    first_byte_ms: z.number().nullable(),
    duration_ms: z.number(),
    tries: z
      .array(
        z.looseObject({
          status: z.int().nullable().describe("Of the provider's answer; null: there was none"),
          reason: z
            .string()
            .nullable()
            .describe(
              "connect, timeout, cut, garbage, account, rate_limited, server_error, refused, cancelled, exhausted, unsendable; null: it answered",
            ),
          ms: z.number(),
        }),
      )
      .describe("Calls to providers, the first 100"),
    input_tokens: tokens,
    output_tokens: tokens,
    credits,
    tool_calls: z.int(),
    batch_id: z.string().nullable(),
    tags: z.record(z.string(), z.string()),
  }),
);
export const requestRecordList = named("RequestList", list(requestRecordBody));

export const user = named(
  "User",
  z.looseObject({
    object: z.literal("organization.user"),
    id: z.string().describe("Stands where a key's id stands"),
    name: z.string().nullable().describe("As their token says; null: it does not"),
    role: z.enum(["member", "viewer", "admin"]),
    project_id: z.string().nullable().describe("Of a member; null: of another role"),
    added_at: unixTime,
    last_used_at: unixTime.nullable(),
    ...limited,
  }),
);
export const userList = named("UserList", list(user));

// Reports.

/** Null where the report is not grouped by a tag, and for what does not carry it. */
const tag = z.looseObject({ name: z.string(), value: z.string() }).nullable();
const isoBuckets = <Result extends z.ZodType>(result: Result) => ({
  data: z.array(z.looseObject({ starting_at: isoTime, ending_at: isoTime, results: z.array(result) })),
  has_more: z.boolean(),
  next_page: z.int().nullable(),
});
const unixBuckets = <Result extends z.ZodType>(result: Result) => ({
  object: z.literal("page"),
  data: z.array(
    z.looseObject({
      object: z.literal("bucket"),
      start_time: unixTime,
      end_time: unixTime,
      results: z.array(result),
    }),
  ),
  has_more: z.boolean(),
  next_page: z.int().nullable(),
});
export const messagesUsageReport = named(
  "MessagesUsageReport",
  z.looseObject(
    isoBuckets(
      z.looseObject({
        uncached_input_tokens: tokens,
        cache_read_input_tokens: tokens,
        cache_creation: z.looseObject({
          ephemeral_5m_input_tokens: tokens,
          ephemeral_1h_input_tokens: tokens,
        }),
        output_tokens: tokens,
        server_tool_use: z.looseObject({ web_search_requests: z.int() }),
        api_key_id: z.string().nullable(),
        workspace_id: z.string().nullable(),
        model: z.string().nullable(),
        service_tier: z.string().nullable(),
        context_window: z.int().nullable(),
        tag,
      }),
    ),
  ),
);
const costReportResult = z.looseObject({
  currency: z.literal("IDR"),
  amount: z.string().describe("Decimal number of rupiah"),
  credits,
  description: z.string().nullable(),
  cost_type: z.enum(["tokens", ...serverToolNames]).nullable(),
  model: z.string().nullable(),
  token_type: z.string().nullable(),
  service_tier: z.string().nullable(),
  tag,
});
export const costReportBody = named(
  "CostReport",
  z.looseObject({ results: z.array(costReportResult), ...isoBuckets(costReportResult) }),
);
const completionsUsageResult = z.looseObject({
  object: z.literal("organization.usage.completions.result"),
  input_tokens: tokens,
  input_cached_tokens: tokens,
  output_tokens: tokens,
  num_model_requests: z.int(),
  credits,
  model: z.string().nullable(),
  api_key_id: z.string().nullable(),
  project_id: z.string().nullable(),
  batch: z.boolean().nullable(),
  service_tier: z.string().nullable(),
  tag,
});
export const completionsUsageBody = named(
  "CompletionsUsage",
  z.looseObject({
    results: z.array(completionsUsageResult).describe("Of all buckets of the page, the dearest first"),
    ...unixBuckets(completionsUsageResult),
  }),
);
const costsResult = z.looseObject({
  object: z.literal("organization.costs.result"),
  amount: z.looseObject({ value: z.number().describe("Rupiah"), currency: z.literal("idr") }),
  credits,
  line_item: z.string().nullable(),
  project_id: z.string().nullable(),
  tag,
});
export const costsBody = named(
  "Costs",
  z.looseObject({ results: z.array(costsResult), ...unixBuckets(costsResult) }),
);

// Models, files, batches.

const eitherTime = z
  .union([isoTime, unixTime])
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
export const model = named(
  "Model",
  z.looseObject({
    id: z.string(),
    display_name: z.string(),
    max_input_tokens: z.int().describe("Of its context"),
    max_tokens: z.int().describe("Of an answer, the most and the default"),
    capabilities: z.looseObject({
      ...Object.fromEntries(serverToolNames.map((name) => [name, z.looseObject({ supported: z.boolean() })])),
      code_execution: z.literal(false),
      skills: z.literal(false),
    }),
    pricing: z
      .looseObject({
        unit: z.literal("credit"),
        per: z.literal(1_000_000).describe("Tokens that a price is for; those of tools are for 1,000 units"),
        ...tokenPrices,
        changes: z
          .array(z.looseObject({ from: isoTime, ...tokenPrices }))
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
    created_at: isoTime,
    expires_at: isoTime,
    ended_at: isoTime.nullable(),
    cancel_initiated_at: isoTime.nullable(),
    archived_at: isoTime.nullable(),
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
    input_file_id: z.string(),
    output_file_id: z.string().nullable(),
    error_file_id: z.string().nullable(),
    created_at: unixTime,
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

/** What server tools a dialect's clients may declare, for the reader of the description. */
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
