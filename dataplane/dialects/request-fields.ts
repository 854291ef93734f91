/**
 * What becomes of every request field toward every dialect, when a request is converted (rule 2.2). Data: it
 * drives `x-gapura-dropped`, `x-gapura-strict` and the page docs/dialects.md; a test holds it against the request
 * types of the official SDKs. Toward its own dialect a request is converted only when it uses a server tool;
 * otherwise it is relayed and nothing of this applies but the refusals.
 *
 * - `mapped`: has a counterpart there, or was used up here, by read-request.ts and write-request.ts.
 * - a path: crosses as it is to that field of the other dialect, beside the hub (rule 2.1).
 * - `dropped`: no counterpart; named in the header, 400 under strict.
 * - `refused`: 400, because leaving it out would change what the client gets.
 */
import type { Dialect } from "./dialect.ts";
import { serverToolItems } from "./find-server-tool.ts";
import type { JsonValue } from "./messages/types.ts";
import { accountFields } from "./price-effects.ts";

export type FieldHandling = "mapped" | "dropped" | "refused" | { readonly copiedTo: string };

export interface FieldRule {
  /** Dotted; lists are walked through without an index. */
  readonly name: string;
  readonly to: Readonly<Record<Dialect, FieldHandling>>;
  /** Values that ask for nothing: leaving them out loses nothing. */
  readonly neutral?: readonly JsonValue[];
  /** In an object with this `role` the field is used up, whatever the target. */
  readonly usedInRole?: string;
  /** Elements of a list that are served, or ask for nothing here; any other is dropped. Absent: all are. */
  readonly served?: readonly string[];
  /** Spec, Translation path: dropped whatever the target when a server tool is used. */
  readonly droppedWithServerTools?: true;
  /**
   * What its reader uses of the objects that stand there, beside those with a row of their own. Whatever else they
   * hold is nothing that anybody here knows: it is dropped toward other dialects. Absent: not looked into, as it is
   * the client's own data (schemas, arguments, maps) or refused elsewhere.
   */
  readonly holds?: readonly string[];
  /** For the documentation. */
  readonly note?: string;
}

type Extra = Pick<
  FieldRule,
  "neutral" | "usedInRole" | "served" | "droppedWithServerTools" | "holds" | "note"
>;
type Row = readonly [
  name: string,
  messages: FieldHandling,
  chat: FieldHandling,
  responses: FieldHandling,
  extra?: Extra,
];

const mapped = "mapped";
const dropped = "dropped";
const refused = "refused";
const as = (copiedTo: string): FieldHandling => ({ copiedTo });

const table = (rows: readonly Row[]): readonly FieldRule[] =>
  rows.map(([name, messages, chat, responses, extra]) => ({
    name,
    to: { messages, chat, responses },
    ...extra,
  }));

/** Content blocks of Messages form, also those within results and documents. */
const blockParts = [
  "type",
  "text",
  "source",
  "id",
  "name",
  "input",
  "tool_use_id",
  "content",
  "thinking",
  "signature",
  "data",
  "tool_name",
];
const sourceParts = ["type", "media_type", "data", "url", "file_id", "content"];
/** What a declaration of one of Gapura's server tools may say; read, or accepted and ignored (service.md "Declarations in Messages"). */
const serverToolParts = [
  "max_uses",
  "allowed_domains",
  "blocked_domains",
  "user_location",
  "citations",
  "max_content_tokens",
  "use_cache",
  "response_inclusion",
  "url_sources",
  "search_profile",
  "allowed_x_handles",
  "excluded_x_handles",
  "from_date",
  "to_date",
];
const responsesSearchParts = ["search_context_size", "filters", "user_location", "external_web_access"];
/** Given always or when asked for, of tools that are refused, or of input items, which are never listed. */
const servedIncludes = [
  "reasoning.encrypted_content",
  ...Array.from(serverToolItems, (item) => `${item}.action.sources`),
  "file_search_call.results",
  "code_interpreter_call.outputs",
  "computer_call_output.output.image_url",
  "message.input_image.image_url",
];
const contentParts = [
  "type",
  "text",
  "refusal",
  "image_url",
  "file_id",
  "file_data",
  "file_url",
  "filename",
  "annotations",
  "logprobs",
];

const ofAggregators = "known to providers that speak this dialect beside its vendor";

const accountNotes: Readonly<Record<string, string>> = {
  diagnostics: "an id of another conversation",
  fallbacks: "another model, at its price",
  models: "OpenRouter: other models, at their prices",
  provider: "OpenRouter: who serves it, at what price",
  plugins: "OpenRouter: tools with fees of their own",
  search_parameters: "xAI: a fee for each source",
  enable_search: "Qwen: a fee for each search",
};

/** What no dialect offers here (service.md "Errors"). */
const unavailableRows: readonly Row[] = [
  ["container", refused, refused, refused],
  ["mcp_servers", refused, refused, refused, { neutral: [[]] }],
];
/** What names an account of a provider, or what it shall serve, in whichever dialect it comes. */
const accountRows = accountFields.map((name): Row => {
  const note = accountNotes[name];
  return [name, dropped, dropped, dropped, note === undefined ? {} : { note }];
});

const messagesFields = table([
  ["model", mapped, mapped, mapped],
  [
    "max_tokens",
    mapped,
    mapped,
    mapped,
    { note: "at most the model's; absent: the model's; at least 16 toward Responses" },
  ],
  ["messages", mapped, mapped, mapped, { holds: ["role", "content"] }],
  ["messages.content", mapped, mapped, mapped, { holds: blockParts }],
  ["messages.content.source", mapped, mapped, mapped, { holds: sourceParts }],
  ["messages.content.cache_control", mapped, dropped, dropped],
  ["messages.content.citations", mapped, dropped, dropped, { neutral: [[], { enabled: false }] }],
  [
    "messages.content.title",
    mapped,
    mapped,
    mapped,
    { note: "a document's file name; of text and URLs: a text before it" },
  ],
  ["messages.content.context", mapped, mapped, mapped, { note: "a text before the document" }],
  ["messages.content.is_error", mapped, mapped, mapped, { note: "the result begins with `Error: `" }],
  ["messages.content.content", mapped, mapped, mapped, { holds: [...blockParts, "title", "context"] }],
  ["messages.content.content.source", mapped, mapped, mapped, { holds: sourceParts }],
  ["messages.content.content.cache_control", mapped, dropped, dropped],
  ["messages.content.content.transformations", mapped, dropped, dropped],
  ["messages.content.content.citations", mapped, dropped, dropped, { neutral: [[], { enabled: false }] }],
  ["messages.content.transformations", mapped, dropped, dropped],
  ["messages.content.caller", mapped, dropped, dropped, { neutral: [{ type: "direct" }] }],
  ["messages.content.toolset_name", mapped, dropped, dropped],
  ["messages.output_config", mapped, dropped, dropped, { note: "effort of one turn" }],
  ["messages.clear_at", mapped, dropped, dropped],
  [
    "system",
    mapped,
    mapped,
    mapped,
    { holds: ["type", "text"], note: "without Claude Code's billing header" },
  ],
  ["system.cache_control", mapped, dropped, dropped],
  ["system.citations", mapped, dropped, dropped, { neutral: [[]] }],
  [
    "tools",
    mapped,
    mapped,
    mapped,
    {
      holds: ["type", "name", "description", "input_schema", ...serverToolParts],
      note: "typed client tools (bash, text editor, …): refused toward Chat and Responses",
    },
  ],
  ["tools.cache_control", mapped, dropped, dropped],
  ["tools.defer_loading", mapped, dropped, dropped, { neutral: [false], note: "the tool itself is kept" }],
  ["tools.eager_input_streaming", mapped, dropped, dropped, { neutral: [false] }],
  ["tools.input_examples", mapped, dropped, dropped, { neutral: [[]] }],
  ["tools.allowed_callers", mapped, dropped, dropped, { neutral: [["direct"]] }],
  ["tools.strict", mapped, mapped, mapped],
  ["tool_choice", mapped, mapped, mapped, { holds: ["type", "name", "disable_parallel_tool_use"] }],
  [
    "thinking",
    mapped,
    mapped,
    mapped,
    {
      holds: ["type", "budget_tokens"],
      note: "`enabled` is `adaptive` with effort medium; `budget_tokens` is never sent",
    },
  ],
  [
    "thinking.display",
    mapped,
    mapped,
    mapped,
    { note: "`omitted`: its text is left out here, and of Responses no summary is asked for" },
  ],
  ["output_config", mapped, mapped, mapped, { holds: [] }],
  ["output_config.effort", mapped, mapped, mapped],
  ["output_config.format", mapped, mapped, mapped, { holds: ["type", "schema"] }],
  ["output_config.task_budget", mapped, dropped, dropped],
  ["output_format", mapped, mapped, mapped, { holds: ["type", "schema"], note: "as `output_config.format`" }],
  ["temperature", mapped, mapped, mapped],
  ["top_p", mapped, mapped, mapped],
  ["top_k", mapped, dropped, dropped],
  [
    "stop_sequences",
    mapped,
    mapped,
    mapped,
    { note: "applied here to the answers of Responses, and of Chat where there are more than 4" },
  ],
  ["stream", mapped, mapped, mapped],
  ["metadata", mapped, mapped, mapped, { holds: [] }],
  ["metadata.user_id", mapped, mapped, mapped, { note: "hashed when longer than 64 characters" }],
  ["service_tier", mapped, dropped, dropped, { neutral: ["auto", "standard_only"] }],
  ["cache_control", mapped, dropped, dropped],
  ["speed", mapped, dropped, dropped, { neutral: ["standard"] }],
  ["inference_geo", mapped, dropped, dropped],
  ...accountRows,
  ["context_management", mapped, dropped, dropped],
  ["compaction", mapped, dropped, dropped],
  ["reasoning", mapped, dropped, dropped, { note: ofAggregators }],
  ["betas", dropped, dropped, dropped, { note: "a header on the wire" }],
  ...unavailableRows,
  ["thread", refused, refused, refused, { note: "the SDKs then send the whole history" }],
]);

const chatFields = table([
  ["model", mapped, mapped, mapped],
  [
    "messages",
    mapped,
    mapped,
    mapped,
    { holds: ["role", "content", "refusal", "annotations", "tool_call_id"] },
  ],
  ["messages.content", mapped, mapped, mapped, { holds: ["type", "text", "refusal", "input_audio"] }],
  ["messages.content.image_url", mapped, mapped, mapped, { holds: ["url"] }],
  [
    "messages.content.file",
    mapped,
    mapped,
    mapped,
    {
      holds: ["file_data", "file_id", "filename"],
      note: "a text file becomes text, its name before it",
    },
  ],
  ["messages.tool_calls", mapped, mapped, mapped, { holds: ["type", "id", "index"] }],
  ["messages.tool_calls.function", mapped, mapped, mapped, { holds: ["name", "arguments"] }],
  ["messages.function_call", mapped, mapped, mapped, { holds: ["name", "arguments"] }],
  ["messages.name", dropped, dropped, dropped, { usedInRole: "function" }],
  ["messages.audio", dropped, dropped, dropped],
  [
    "messages.reasoning_content",
    dropped,
    mapped,
    dropped,
    { note: "without the signature that the others ask for" },
  ],
  ["messages.content.image_url.detail", dropped, mapped, mapped, { neutral: ["auto"] }],
  ["messages.content.prompt_cache_breakpoint", dropped, dropped, dropped],
  ["max_tokens", mapped, mapped, mapped],
  ["max_completion_tokens", mapped, mapped, mapped],
  ["temperature", mapped, mapped, mapped, { note: "at most 1 toward Messages" }],
  ["top_p", mapped, mapped, mapped],
  ["n", refused, refused, refused, { neutral: [1] }],
  [
    "stop",
    mapped,
    mapped,
    mapped,
    {
      note: "toward Messages those of whitespace alone are dropped; applied here to the answers of Responses",
    },
  ],
  [
    "frequency_penalty",
    dropped,
    as("frequency_penalty"),
    dropped,
    { neutral: [0], droppedWithServerTools: true },
  ],
  [
    "presence_penalty",
    dropped,
    as("presence_penalty"),
    dropped,
    { neutral: [0], droppedWithServerTools: true },
  ],
  ["logit_bias", dropped, as("logit_bias"), dropped, { neutral: [{}] }],
  ["logprobs", dropped, dropped, dropped, { neutral: [false], droppedWithServerTools: true }],
  ["top_logprobs", dropped, dropped, dropped, { neutral: [0] }],
  ["seed", dropped, as("seed"), dropped, { droppedWithServerTools: true }],
  [
    "response_format",
    mapped,
    mapped,
    mapped,
    { holds: ["type"], note: "`json_object` toward Messages: an instruction" },
  ],
  ["response_format.json_schema", mapped, mapped, mapped, { holds: ["schema"] }],
  ["response_format.json_schema.name", mapped, mapped, mapped],
  ["response_format.json_schema.description", dropped, mapped, mapped],
  ["response_format.json_schema.strict", mapped, mapped, mapped, { note: "Messages is always strict" }],
  ["tools", mapped, mapped, mapped, { holds: ["type"], note: "`function` only; others are refused" }],
  ["tools.function", mapped, mapped, mapped, { holds: ["name", "description", "parameters"] }],
  ["tools.function.strict", mapped, mapped, mapped],
  [
    "tool_choice",
    mapped,
    mapped,
    mapped,
    { holds: ["type", "allowed_tools"], note: "`allowed_tools` filters the tools" },
  ],
  ["tool_choice.function", mapped, mapped, mapped, { holds: ["name"] }],
  ["parallel_tool_calls", mapped, mapped, mapped],
  ["functions", mapped, mapped, mapped, { holds: ["name", "description", "parameters"] }],
  ["function_call", mapped, mapped, mapped, { holds: ["name"] }],
  ["reasoning_effort", mapped, mapped, mapped],
  ["verbosity", dropped, as("verbosity"), as("text.verbosity")],
  [
    "modalities",
    dropped,
    as("modalities"),
    dropped,
    { neutral: [["text"]], note: "`audio` and `image` are refused where they do not go, others always" },
  ],
  ["audio", dropped, dropped, dropped],
  ...accountRows,
  ...unavailableRows,
  ["prediction", dropped, as("prediction"), dropped],
  ["moderation", dropped, as("moderation"), as("moderation")],
  ["metadata", dropped, as("metadata"), as("metadata"), { neutral: [{}] }],
  ["store", mapped, mapped, mapped, { note: "nothing is stored at an upstream" }],
  ["stream", mapped, mapped, mapped],
  ["stream_options", mapped, mapped, mapped],
  ["service_tier", dropped, as("service_tier"), as("service_tier"), { neutral: ["auto", "default"] }],
  ["speed", dropped, as("speed"), dropped, { neutral: ["standard"], note: ofAggregators }],
  ["inference_geo", dropped, as("inference_geo"), dropped, { note: ofAggregators }],
  [
    "reasoning",
    mapped,
    mapped,
    mapped,
    { holds: [], note: `${ofAggregators}; its \`effort\` is dropped: that is \`reasoning_effort\`` },
  ],
  ["reasoning.mode", dropped, as("reasoning.mode"), dropped],
  ["user", mapped, as("user"), as("user")],
  ["safety_identifier", mapped, as("safety_identifier"), as("safety_identifier")],
  [
    "prompt_cache_key",
    dropped,
    as("prompt_cache_key"),
    as("prompt_cache_key"),
    { droppedWithServerTools: true },
  ],
  ["prompt_cache_options", dropped, as("prompt_cache_options"), as("prompt_cache_options")],
  ["prompt_cache_retention", dropped, as("prompt_cache_retention"), as("prompt_cache_retention")],
  ["web_search_options", mapped, mapped, mapped, { note: "run by Gapura" }],
]);

const responsesFields = table([
  ["model", mapped, mapped, mapped],
  [
    "input",
    mapped,
    mapped,
    mapped,
    {
      holds: [
        "type",
        "role",
        "id",
        "name",
        "namespace",
        "call_id",
        "arguments",
        "encrypted_content",
        "action",
        "tools",
      ],
    },
  ],
  ["input.summary", mapped, mapped, mapped, { holds: ["type", "text"] }],
  [
    "input.content",
    mapped,
    mapped,
    mapped,
    { holds: contentParts, note: "a text file becomes text, its name before it" },
  ],
  ["input.output", mapped, mapped, mapped, { holds: contentParts }],
  ["input.output.detail", dropped, mapped, mapped, { neutral: ["auto"] }],
  ["input.output.prompt_cache_breakpoint", dropped, dropped, dropped],
  ["input.phase", dropped, dropped, dropped],
  ["input.async", dropped, dropped, dropped, { neutral: [false] }],
  ["input.caller", dropped, dropped, dropped, { neutral: [{ type: "direct" }] }],
  ["input.status", mapped, mapped, mapped],
  ["input.content.detail", dropped, mapped, mapped, { neutral: ["auto"] }],
  ["input.content.prompt_cache_breakpoint", dropped, dropped, dropped],
  ["instructions", mapped, mapped, mapped],
  ["max_output_tokens", mapped, mapped, mapped],
  ["max_tool_calls", mapped, mapped, mapped, { note: "counts Gapura's server tools" }],
  [
    "tools",
    mapped,
    mapped,
    mapped,
    {
      holds: [
        "type",
        "name",
        "description",
        "parameters",
        "tools",
        ...responsesSearchParts,
        ...serverToolParts,
      ],
      note: "`function`, `namespace` (flattened) and Gapura's server tools; others are refused",
    },
  ],
  ["tools.strict", mapped, mapped, mapped],
  ["tools.defer_loading", dropped, dropped, dropped, { neutral: [false], note: "the tool itself is kept" }],
  ["tools.async", dropped, dropped, dropped, { neutral: [false] }],
  ["tools.output_schema", dropped, dropped, dropped],
  ["tools.allowed_callers", dropped, dropped, dropped, { neutral: [["direct"]] }],
  [
    "tool_choice",
    mapped,
    mapped,
    mapped,
    { holds: ["type", "name", "namespace", "mode", "tools"], note: "`allowed_tools` filters the tools" },
  ],
  ["parallel_tool_calls", mapped, mapped, mapped],
  ["temperature", mapped, mapped, mapped, { note: "at most 1 toward Messages" }],
  ["top_p", mapped, mapped, mapped],
  ["top_logprobs", dropped, dropped, dropped, { neutral: [0] }],
  ["reasoning", mapped, mapped, mapped, { holds: [] }],
  ["reasoning.effort", mapped, mapped, mapped],
  ["reasoning.summary", mapped, dropped, as("reasoning.summary"), { neutral: ["auto"] }],
  ["reasoning.generate_summary", mapped, dropped, as("reasoning.generate_summary"), { neutral: ["auto"] }],
  ["reasoning.context", dropped, dropped, as("reasoning.context")],
  ["reasoning.mode", dropped, dropped, as("reasoning.mode")],
  ["text", mapped, mapped, mapped, { holds: [] }],
  [
    "text.format",
    mapped,
    mapped,
    mapped,
    { holds: ["type", "schema"], note: "`json_object` toward Messages: an instruction" },
  ],
  ["text.format.name", mapped, mapped, mapped],
  ["text.format.strict", mapped, mapped, mapped, { note: "Messages is always strict" }],
  ["text.format.description", dropped, mapped, mapped],
  ["text.verbosity", dropped, as("verbosity"), as("text.verbosity")],
  ["include", mapped, mapped, mapped, { served: servedIncludes }],
  ["metadata", dropped, as("metadata"), as("metadata"), { neutral: [{}] }],
  ["store", mapped, mapped, mapped, { note: "nothing is stored at an upstream" }],
  ["stream", mapped, mapped, mapped],
  ["stream_options", mapped, mapped, mapped],
  ["truncation", dropped, dropped, as("truncation"), { neutral: ["disabled"] }],
  ["user", mapped, as("user"), as("user")],
  ["safety_identifier", mapped, as("safety_identifier"), as("safety_identifier")],
  [
    "prompt_cache_key",
    dropped,
    as("prompt_cache_key"),
    as("prompt_cache_key"),
    { droppedWithServerTools: true },
  ],
  ["prompt_cache_options", dropped, as("prompt_cache_options"), as("prompt_cache_options")],
  ["prompt_cache_retention", dropped, as("prompt_cache_retention"), as("prompt_cache_retention")],
  ["service_tier", dropped, as("service_tier"), as("service_tier"), { neutral: ["auto", "default"] }],
  ["speed", dropped, dropped, as("speed"), { neutral: ["standard"], note: ofAggregators }],
  ["inference_geo", dropped, dropped, as("inference_geo"), { note: ofAggregators }],
  ...accountRows,
  ...unavailableRows,
  ["context_management", dropped, dropped, as("context_management")],
  ["moderation", dropped, as("moderation"), as("moderation")],
  ["image", dropped, dropped, as("image")],
  ["access_programs", dropped, dropped, as("access_programs")],
  ["client_metadata", dropped, dropped, dropped, { note: "sent by Codex" }],
  ["background", refused, refused, refused, { neutral: [false] }],
  ["conversation", refused, refused, refused],
  ["previous_response_id", refused, refused, refused],
  ["prompt", refused, refused, refused],
]);

/** Every known request field of a dialect's clients. */
export const fields: Readonly<Record<Dialect, readonly FieldRule[]>> = {
  messages: messagesFields,
  chat: chatFields,
  responses: responsesFields,
};
