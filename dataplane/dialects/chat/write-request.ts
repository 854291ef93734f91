/** Writes a request in the hub for a Chat Completions upstream (dialects.md §D1, §D2). */
import { clampOutput, noteSampling, noteThinking, refuseMedia } from "../capabilities.ts";
import type { Carry, Target } from "../codecs.ts";
import type { DropListener } from "../drop-listener.ts";
import { openaiEffort } from "../effort.ts";
import { wantsJsonObject, writeSchemaFormat } from "../formats.ts";
import { instructionsOf } from "../instructions.ts";
import { asksLogprobs } from "../logprobs.ts";
import { copyCarried, noteLosses } from "../losses.ts";
import { chatStops } from "../stop-sequences.ts";
import { refuseNothingSaid, refusePrefill } from "../upstream-checks.ts";
import { userId } from "../user-id.ts";
import { writeTools, type FunctionForms } from "../write-tools.ts";
import type { JsonObject, MessagesRequest } from "../messages/types.ts";
import { writeMessages } from "./write-messages.ts";

export function writeChatRequest(
  request: MessagesRequest,
  carry: Carry,
  target: Target,
  notes: DropListener,
): JsonObject {
  noteLosses(carry, "chat", notes);
  refuseMedia(request, carry, target);
  refusePrefill(request, carry);
  const messages = writeMessages(request, carry, target);
  refuseNothingSaid(request, carry, instructionsOf(request) === undefined ? messages : messages.slice(1));
  const body: JsonObject = {
    model: target.upstreamModel,
    messages,
    ...writeLimits(request, carry, target),
    ...writeStops(request),
    ...writeTools(request, carry, notes, functions),
    ...writeFormat(request, carry, notes),
  };
  copyCarried(carry, "chat", body);
  if (asksLogprobs(carry)) body["logprobs"] = true;
  // A Responses client's is 0 then, which Chat refuses without `logprobs`.
  else if (carry.dialect === "responses") delete body["top_logprobs"];
  if (noteSampling(request, target, notes)) {
    if (request.temperature !== undefined) body["temperature"] = request.temperature;
    if (request.top_p !== undefined) body["top_p"] = request.top_p;
  }
  const effort = noteThinking(request, carry, target, notes) ? openaiEffort(request, carry) : undefined;
  if (effort !== undefined) body["reasoning_effort"] = effort;
  // The user fields of Chat and Responses clients were copied above.
  const user = carry.dialect === "messages" ? userId(request) : undefined;
  if (user !== undefined) body["user"] = user;
  if (carry.dialect === "chat" && typeof carry.request["store"] === "boolean") body["store"] = false;
  if (request.stream === true) Object.assign(body, { stream: true, stream_options: { include_usage: true } });
  return body;
}

/** Writes the output limit, in the field that a Chat client used: older upstreams know only `max_tokens`. */
function writeLimits(request: MessagesRequest, carry: Carry, target: Target): JsonObject {
  const limit = clampOutput(request.max_tokens, target);
  if (limit === undefined)
    return carry.dialect === "messages" ? { max_completion_tokens: target.maxOutputTokens } : {};
  const names = (field: string) => carry.dialect === "chat" && (carry.request[field] ?? null) !== null;
  const older = names("max_tokens") && !names("max_completion_tokens");
  return older ? { max_tokens: limit } : { max_completion_tokens: limit };
}

/** Further stop sequences are applied to the answer (rule 2.4). */
function writeStops({ stop_sequences: stops = [] }: MessagesRequest): JsonObject {
  return stops.length === 0 ? {} : { stop: chatStops(stops) };
}

const functions: FunctionForms = {
  tool: ({ name, description, input_schema, strict }) => ({
    type: "function",
    function: {
      name,
      ...(description !== undefined && { description }),
      parameters: input_schema,
      ...(strict !== undefined && { strict }),
    },
  }),
  choice: (name) => ({ type: "function", function: { name } }),
};

function writeFormat(request: MessagesRequest, carry: Carry, notes: DropListener): JsonObject {
  if (wantsJsonObject(carry)) return { response_format: { type: "json_object" } };
  const format = writeSchemaFormat(request, carry, notes);
  if (format === undefined) return {};
  const { type, ...schema } = format;
  return { response_format: { type, json_schema: schema } };
}
