/**
 * Fields that the gateway adds to a request, or whose removal loses nothing (rule 2.2), and that a server of the
 * dialect may refuse: an upstream that does is asked again without them (docs/dialects.md). `metadata` is the client's,
 * and its loss is named: some upstreams take it only with what they store, and we let them store nothing. What `stop`
 * asks for is done here then (rule 2.4). An effort that a model does not know is the client's too: the nearest that it
 * knows is asked for instead (dialects.md §D1).
 * Of `temperature` and `top_p`, which newer Messages models take one at a time only, one goes; they take closed schemas
 * alone, with few keywords.
 */
import type { Dialect } from "./dialect.ts";
import type { DropListener } from "./drop-listener.ts";
import { arrayOf, objectOf } from "./fields.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";
import { messagesSchemas, plainSchema } from "./plain-schemas.ts";
import type { ReportedError } from "./reported-error.ts";
import { closeObjects } from "./schemas.ts";

const names = [
  "service_tier",
  "stream_options",
  "max_completion_tokens",
  "user",
  "metadata",
  "stop",
] as const;

/** Efforts that some models do not know, each with the nearest that all models with reasoning do. */
const nearestEfforts = { none: "low", minimal: "low", xhigh: "high", max: "high" } as const;

const EFFORT = "reasoning_effort:";
/** An effort is known or unknown by itself: a model that refuses `max` may know `none`. */
type OwnEffort = `${typeof EFFORT}${keyof typeof nearestEfforts}`;
/** Named like no field: what is refused about one of the two alone the client has to know. */
const BOTH_SAMPLINGS = "temperature and top_p";
/** The schema of structured output with objects that are not said to be closed. */
const OPEN_FORMAT = "open format";
/** Of reasoning, which we ask for in the name of a Messages client: some accounts get none. */
const SUMMARY = "reasoning.summary";
/** Thinking of a request that forces a tool. Named like no field, as with the two samplings. */
const FORCED_THINKING = "thinking with a forced tool";
const KEYWORD = "schema keyword:";
/**
 * A keyword of schemas that an upstream follows strictly. Each is refused by itself: that one client's `minimum` was
 * takes no other's `pattern` away, which the upstream may follow.
 */
type OwnKeyword = `${typeof KEYWORD}${string}`;
export type OwnField =
  | (typeof names)[number]
  | OwnEffort
  | typeof BOTH_SAMPLINGS
  | typeof OPEN_FORMAT
  | typeof SUMMARY
  | typeof FORCED_THINKING
  | OwnKeyword;

/**
 * Fields whose values are ours as well: whatever is refused about them, they can go. A fault in the others the client
 * has to know.
 */
const ownValues: readonly string[] = ["service_tier", "stream_options", SUMMARY] satisfies OwnField[];

/** Codes of OpenAI and types of pydantic for an unknown field. */
const unknownField = new Set([
  "unknown_parameter",
  "unsupported_parameter",
  "extra_forbidden",
  "value_error.extra",
]);

/** Codes of OpenAI and types of pydantic for a value that the model, or the server, does not know. */
const unknownValue = new Set(["unsupported_value", "invalid_value", "literal_error", "enum"]);

/** Whether an upstream that refused a field for this reason may be asked again without it; of the effort with another. */
const isDispensable = (name: OwnField, reason: string): boolean =>
  isEffort(name) ? unknownValue.has(reason) : ownValues.includes(name) || unknownField.has(reason);

const isEffort = (name: OwnField): name is OwnEffort => name.startsWith(EFFORT);

const mayBeUnknown = (effort: unknown): effort is keyof typeof nearestEfforts =>
  typeof effort === "string" && Object.hasOwn(nearestEfforts, effort);

/**
 * Replaces an effort in the request of an upstream that does not know it.
 * @returns the effort that is left, if it may be refused and replaced.
 */
export function withKnownEffort(body: JsonObject, unknown: readonly OwnField[]): OwnEffort | null {
  const reasoning = objectOf(body["reasoning"]);
  const config = objectOf(body["output_config"]);
  const effort = config?.["effort"] ?? reasoning?.["effort"] ?? body["reasoning_effort"];
  if (!mayBeUnknown(effort)) return null;
  const own: OwnEffort = `${EFFORT}${effort}`;
  if (!unknown.includes(own)) return own;
  const nearest = nearestEfforts[effort];
  if (body["reasoning_effort"] !== undefined) body["reasoning_effort"] = nearest;
  else if (config !== null) body["output_config"] = { ...config, effort: nearest };
  else if (reasoning !== null) body["reasoning"] = { ...reasoning, effort: nearest };
  return null;
}

/** The temperature and `top_p` of Messages where a request has none. */
const USUAL_SAMPLING = 1;

/**
 * Leaves out one of `temperature` and `top_p` for a Messages upstream that does not take both: one that says nothing, else
 * `top_p`.
 * @returns both, if they may be refused.
 */
export function withOneSampling(
  body: JsonObject,
  unknown: readonly OwnField[],
  notes: DropListener,
): typeof BOTH_SAMPLINGS | null {
  const { temperature, top_p } = body;
  if (temperature === undefined || top_p === undefined) return null;
  if (!unknown.includes(BOTH_SAMPLINGS)) return BOTH_SAMPLINGS;
  if (temperature === USUAL_SAMPLING) delete body["temperature"];
  else {
    delete body["top_p"];
    if (top_p !== USUAL_SAMPLING) notes.dropped("top_p");
  }
  return null;
}

/**
 * Turns thinking off for a Messages upstream whose model does not think where a tool is forced: that a tool is called the
 * client relies on, and its effort stays.
 * @returns the thinking, if it may be refused.
 */
export function withoutForcedThinking(
  body: JsonObject,
  unknown: readonly OwnField[],
): typeof FORCED_THINKING | null {
  const choice = objectOf(body["tool_choice"])?.["type"];
  const thinking = objectOf(body["thinking"])?.["type"] ?? "disabled";
  if ((choice !== "any" && choice !== "tool") || thinking === "disabled") return null;
  if (!unknown.includes(FORCED_THINKING)) return FORCED_THINKING;
  body["thinking"] = { type: "disabled" };
  return null;
}

/**
 * Closes the schema of structured output for a Messages upstream that takes no other.
 * @returns the schema, if it may be refused.
 */
export function withClosedFormat(body: JsonObject, unknown: readonly OwnField[]): typeof OPEN_FORMAT | null {
  const config = objectOf(body["output_config"]);
  const format = objectOf(config?.["format"]);
  const schema = objectOf(format?.["schema"]);
  if (schema === null) return null;
  if (!unknown.includes(OPEN_FORMAT)) return OPEN_FORMAT;
  body["output_config"] = { ...config, format: { ...format, schema: closeObjects(schema) } };
  return null;
}

/**
 * Leaves out the summary of reasoning for a Responses upstream whose account, or model, gives none.
 * @param display what the Messages client said of its thinking: one that asked for summaries is told.
 * @returns the summary, if it may be refused.
 */
export function withoutSummary(
  body: JsonObject,
  unknown: readonly OwnField[],
  { display, notes }: { display: JsonValue | undefined; notes: DropListener },
): typeof SUMMARY | null {
  const { summary, ...rest } = objectOf(body["reasoning"]) ?? {};
  if (summary === undefined) return null;
  if (!unknown.includes(SUMMARY)) return SUMMARY;
  if (Object.keys(rest).length === 0) delete body["reasoning"];
  else body["reasoning"] = rest;
  if (display === "summarized") notes.dropped("thinking.display");
  return null;
}

/** What the schemas of structured output and of tools are called in a client's request. */
const schemaPlaces = {
  chat: { format: "response_format.json_schema.schema", tools: "tools.function.parameters" },
  responses: { format: "text.format.schema", tools: "tools.parameters" },
};

/**
 * Tells in words what a Messages upstream does not take in schemas that it follows strictly. A refusal names some keywords
 * only: of a schema with one that is known to be refused all go that the dialect's own SDK would tell.
 * @param client who is told by its own names what is lost.
 * @returns the keywords that may be refused.
 */
export function withPlainSchemas(
  body: JsonObject,
  unknown: readonly OwnField[],
  client: Exclude<Dialect, "messages">,
  notes: DropListener,
): OwnKeyword[] {
  const held = new Set<OwnKeyword>();
  const lost = new Set<string>();
  const plain = (schema: JsonObject, place: string) =>
    plainSchema(schema, {
      language: messagesSchemas,
      lost: (keyword) => {
        held.add(`${KEYWORD}${keyword}`);
        lost.add(`${place}.${keyword}`);
      },
    });
  const places = schemaPlaces[client];
  const config = objectOf(body["output_config"]);
  const format = objectOf(config?.["format"]);
  const schema = objectOf(format?.["schema"]);
  const plainFormat = schema === null ? null : { ...format, schema: plain(schema, places.format) };
  const tools = arrayOf(body["tools"])?.map((tool) => {
    const input = isStrictTool(tool) ? objectOf(tool["input_schema"]) : null;
    return input === null ? tool : { ...objectOf(tool), input_schema: plain(input, places.tools) };
  });
  if (!unknown.some((name) => isKeyword(name) && held.has(name))) return [...held];
  if (plainFormat !== null) body["output_config"] = { ...config, format: plainFormat };
  if (tools !== undefined) body["tools"] = tools;
  for (const name of lost) notes.dropped(name);
  return [];
}

const isKeyword = (name: OwnField): name is OwnKeyword => name.startsWith(KEYWORD);
const isStrictTool = (tool: JsonValue): tool is JsonObject => objectOf(tool)?.["strict"] === true;

const field = String.raw`["'\`]?[a-z_]+(?:\.[a-z_]+)*["'\`]?`;
const fields = `(${field}(?:, ${field})*)`;
/** Whole sentences by which upstreams refuse fields that they do not know. Only the last words of one may be a client's. */
const sentences = [
  `(?:unrecognized request arguments? supplied|(?:unknown|unrecognized|unsupported|unexpected) (?:parameter|field|argument)s?): ${fields}(?: is not supported with this model\\.(?: Use ${field} instead)?)?\\.?`,
  `${fields}: (?:unknown|unrecognized|unsupported|unexpected) (?:parameter|field|argument)\\.?`,
  `${fields}: extra (?:inputs are|fields) not permitted\\.?`,
  `property ${fields} is unsupported(?:, did you mean ${field}\\?)?\\.?`,
  `extra inputs are not permitted, field: ${fields}(?:, value: .*)?`,
  `(?:the )?(?:parameter |field |argument )?${fields} is (?:unsupported|not (?:supported|allowed|recognized|permitted))(?: (?:by|for|with|on) (?:this|the) (?:model|endpoint|provider|server|api))?\\.?`,
  `(?:invalid json payload received\\. )?unknown name ${fields}: cannot find field\\.?`,
  `unknown field ${fields}, expected .*`,
  `the ${fields} parameter is only allowed when ${field} is enabled\\.?`,
].map((sentence) => new RegExp(`^${sentence}$`, "is"));

/** Whole sentences by which Messages upstreams, whose errors name no field, refuse an effort. */
const effortSentences = [
  `this model does not support effort level ["'](\\w+)["'].*`,
  `output_config\\.effort ["'](\\w+)["'] is not supported (?:by|for|on|with) (?:this )?model.*`,
  `level ["'](\\w+)["'] not supported, valid levels: .*`,
].map((sentence) => new RegExp(`^${sentence}$`, "is"));

/** The whole sentence by which Messages upstreams refuse `temperature` beside `top_p`. */
const samplingSentence =
  /^["'`]?temperature["'`]? and ["'`]?top_p["'`]? cannot both be specified(?: for this model)?\.(?: Please use only one\.)?$/i;

/** The whole sentence by which they refuse thinking where a tool is forced. */
const forcedThinkingSentence = /^thinking may not be enabled when tool_choice forces tool use\.?$/i;

/** How OpenAI begins to refuse summaries to an account whose owner it does not know. */
const summarySentence = /^your organization must be verified to generate reasoning summaries\b/i;

/** The whole sentence by which they refuse a schema that is not closed; those of tools are not meant. */
const openFormatSentence =
  /^(?:output_(?:config\.)?format(?:\.schema)?: )?for 'object' type, 'additionalProperties' must be explicitly set to false\.?$/i;

/** Whole sentences by which they refuse keywords of a schema that they would have to follow strictly. */
const keywordSentence =
  /^(?:output_(?:config\.)?format(?:\.schema)?: |tools\.\d+\.custom(?:\.input_schema)?: )?(?:for '\w+' type, (?:property '(\w+)' is|properties (\w+(?:, \w+)*) are|'(\w+)' values other than \d+ or \d+ are|(format) '[^']*' is) not supported(?: \(got: [^)]*\))?|schema type '(\w+)' is not supported)\.?$/i;

/** Returns the keywords that such a sentence names. */
const refusedKeywords = (message: string): OwnKeyword[] =>
  (keywordSentence.exec(message)?.slice(1) ?? [])
    .flatMap((names?: string) => names?.split(", ") ?? [])
    .map((name): OwnKeyword => `${KEYWORD}${name}`);

/**
 * Returns the top-level fields in a list of fields or of places in them: `'stream_options.include_usage', 'user'`; the
 * summary of reasoning is one of its own.
 */
const fieldsIn = (text: string): string[] =>
  text
    .replaceAll(/["'`]/g, "")
    .split(", ")
    .map((name) => (name === SUMMARY ? name : name.replace(/\..*/, "")));

/**
 * Returns those that an upstream may have refused. A refusal may repeat a client's text: only what names a field is
 * believed.
 * @param held the own fields that the request had.
 */
export function refusedFields(
  { message, param, code, details }: Omit<ReportedError, "type">,
  held: readonly OwnField[],
): OwnField[] {
  const sentence = sentences
    .map((pattern) => pattern.exec(message)?.[1])
    .find((names) => names !== undefined);
  const unknown: string[] = sentence === undefined ? [] : fieldsIn(sentence);
  for (const pattern of effortSentences) {
    const effort = pattern.exec(message)?.[1];
    if (effort !== undefined) unknown.push(`${EFFORT}${effort}`);
  }
  if (samplingSentence.test(message)) unknown.push(BOTH_SAMPLINGS);
  if (summarySentence.test(message)) unknown.push(SUMMARY);
  if (forcedThinkingSentence.test(message)) unknown.push(FORCED_THINKING);
  if (openFormatSentence.test(message)) unknown.push(OPEN_FORMAT);
  unknown.push(...refusedKeywords(message));
  const named = [...details];
  if (param === "reasoning.effort") named.push({ type: code, field: "reasoning_effort" });
  else if (param !== null) named.push(...fieldsIn(param).map((name) => ({ type: code, field: name })));
  return held.filter((name) => {
    const field = isEffort(name) ? "reasoning_effort" : name;
    return unknown.includes(name) || named.some((it) => it.field === field && isDispensable(name, it.type));
  });
}

/**
 * Removes the fields that a Chat upstream does not know; `max_completion_tokens` goes by its older name.
 * @returns the own fields that are left, `service_tier` and the effort aside.
 */
export function withoutUnknown(
  body: JsonObject,
  unknown: readonly OwnField[],
  notes: DropListener,
): OwnField[] {
  const { max_completion_tokens: limit } = body;
  if (unknown.includes("metadata") && body["metadata"] !== undefined) {
    delete body["metadata"];
    notes.dropped("metadata");
  }
  for (const name of ["stream_options", "user", "stop"] as const)
    if (unknown.includes(name)) delete body[name];
  if (unknown.includes("max_completion_tokens") && limit !== undefined) {
    delete body["max_completion_tokens"];
    body["max_tokens"] = limit;
  }
  return names.filter((name) => name !== "service_tier" && body[name] !== undefined);
}
