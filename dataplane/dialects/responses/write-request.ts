/** Writes a request in the hub for a Responses upstream (dialects.md §D1, §D2). */
import { clampOutput, noteSampling, noteThinking, refuseMedia } from "../capabilities.ts";
import type { Carry, Target } from "../codecs.ts";
import type { DropListener } from "../drop-listener.ts";
import { openaiEffort } from "../effort.ts";
import { wantsJsonObject, writeSchemaFormat } from "../formats.ts";
import { hasOwnInstructions, instructionsOf } from "../instructions.ts";
import { LOGPROBS_INCLUDE, asksLogprobs } from "../logprobs.ts";
import { copyCarried, noteLosses } from "../losses.ts";
import { refuseNothingSaid, refusePrefill } from "../upstream-checks.ts";
import { userId } from "../user-id.ts";
import { writeTools, type FunctionForms } from "../write-tools.ts";
import type { JsonObject, MessagesRequest } from "../messages/types.ts";
import { writeInput } from "./write-input.ts";
import { isObject } from "../../lib/json-object.ts";

/** Official least value of `max_output_tokens`; lower ones are raised to it (rule 2.6). */
export const OUTPUT_TOKENS_MIN = 16;

export function writeResponsesRequest(
  request: MessagesRequest,
  carry: Carry,
  target: Target,
  notes: DropListener,
): JsonObject {
  noteLosses(carry, "responses", notes);
  refuseMedia(request, carry, target);
  refusePrefill(request, carry);
  const body: JsonObject = {
    model: target.upstreamModel,
    ...writeConversation(request, carry, target),
    ...writeLimit(request, carry, target),
    ...writeTools(request, carry, notes, functions),
    ...writeFormat(request, carry, notes),
    // Nothing of a tenant stays in the shared account (rule 2.10).
    store: false,
  };
  copyCarried(carry, "responses", body);
  if (noteSampling(request, target, notes)) {
    if (request.temperature !== undefined) body["temperature"] = request.temperature;
    if (request.top_p !== undefined) body["top_p"] = request.top_p;
  }
  writeReasoning(request, carry, body, noteThinking(request, carry, target, notes), target);
  Object.assign(body, writeIncludes(carry, target));
  const user = carry.dialect === "messages" ? userId(request) : undefined;
  if (user !== undefined) body["user"] = user;
  if (request.stream === true) body["stream"] = true;
  return body;
}

function writeConversation(request: MessagesRequest, carry: Carry, target: Target): JsonObject {
  const instructions = instructionsOf(request);
  const input = writeInput(request, carry, target);
  // An input is mandatory: where there are only instructions, they become it.
  if (input.length === 0 && instructions !== undefined && hasOwnInstructions(request))
    return { input: instructions };
  refuseNothingSaid(request, carry, input);
  // Providers refuse JSON without a schema where the word "JSON" stands in the instructions and nowhere in the input.
  if (wantsJsonObject(carry) && instructions !== undefined && /json/i.test(instructions))
    return { input: [{ type: "message", role: "developer", content: instructions }, ...input] };
  return { ...(instructions !== undefined && { instructions }), input };
}

function writeLimit(request: MessagesRequest, carry: Carry, target: Target): JsonObject {
  const wanted = request.max_tokens ?? (carry.dialect === "messages" ? target.maxOutputTokens : undefined);
  const limit = clampOutput(wanted, target);
  return limit === undefined ? {} : { max_output_tokens: Math.max(limit, OUTPUT_TOKENS_MIN) };
}

const functions: FunctionForms = {
  /** Without `strict` Responses would take it for true (rule 2.9). */
  tool: ({ name, description, input_schema, strict }) => ({
    type: "function",
    name,
    ...(description !== undefined && { description }),
    parameters: input_schema,
    strict: strict ?? false,
  }),
  choice: (name) => ({ type: "function", name }),
};

function writeFormat(request: MessagesRequest, carry: Carry, notes: DropListener): JsonObject {
  if (wantsJsonObject(carry)) return { text: { format: { type: "json_object" } } };
  const format = writeSchemaFormat(request, carry, notes);
  return format === undefined ? {} : { text: { format } };
}

/** Writes the reasoning fields, which only models with thinking take. */
function writeReasoning(
  request: MessagesRequest,
  carry: Carry,
  body: JsonObject,
  asked: boolean,
  target: Target,
): void {
  if (!target.thinking) {
    delete body["reasoning"];
    return;
  }
  const effort = asked ? openaiEffort(request, carry) : undefined;
  const shown = carry.dialect === "messages" && showsThinking(request) ? { summary: "auto" } : {};
  const carried = isObject(body["reasoning"]) ? body["reasoning"] : {};
  const reasoning = { ...carried, ...(effort !== undefined && { effort }), ...shown };
  if (Object.keys(reasoning).length > 0) body["reasoning"] = reasoning;
}

/** Sealed reasoning comes back only if it is asked for, and only from models with thinking. */
function writeIncludes(carry: Carry, target: Target): JsonObject {
  const include = [
    ...(target.thinking && target.encryptedReasoning ? ["reasoning.encrypted_content"] : []),
    ...(asksLogprobs(carry) ? [LOGPROBS_INCLUDE] : []),
  ];
  return include.length === 0 ? {} : { include };
}

/** A Messages client sees thinking unless it says otherwise; elsewhere the client asks for a summary itself. */
const showsThinking = ({ thinking }: MessagesRequest): boolean =>
  thinking !== undefined && thinking.type !== "disabled" && thinking.display !== "omitted";
