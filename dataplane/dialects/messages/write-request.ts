/** Writes a request in the hub for a Messages upstream. What the client sent in this dialect stays as it is. */
import type { Carry, Target } from "../codecs.ts";
import type { DropListener } from "../drop-listener.ts";
import { adaptiveThinking } from "../effort.ts";
import { exactInput } from "../exact-inputs.ts";
import { objectOf } from "../fields.ts";
import { wantsJsonObject } from "../formats.ts";
import { clampOutput, noteSampling, noteThinking, refuseMedia } from "../capabilities.ts";
import { hasOwnInstructions } from "../instructions.ts";
import { noteLosses } from "../losses.ts";
import { fields as requestFields } from "../request-fields.ts";
import { signatureFor } from "../reasoning.ts";
import { isUnsent, pricedObjects } from "../price-effects.ts";
import { refuseNothingSaid } from "../upstream-checks.ts";
import { userId } from "../user-id.ts";
import type { ContentBlockParam, FunctionTool, JsonObject, MessageParam, MessagesRequest } from "./types.ts";
import { isObject } from "../../lib/json-object.ts";

/** Ends the instructions: Messages has no mode for JSON without a schema (dialects.md §D1). */
const JSON_OBJECT_INSTRUCTION = "Respond with one valid JSON object and nothing else.";

/** Fields of a Messages client that even a Messages upstream is not sent. */
const droppedToMessages = requestFields.messages
  .filter(({ to }) => to.messages === "dropped" || to.messages === "refused")
  .map(({ name }) => name);

export function writeMessagesRequest(
  request: MessagesRequest,
  carry: Carry,
  target: Target,
  notes: DropListener,
): JsonObject {
  noteLosses(carry, "messages", notes);
  refuseMedia(request, carry, target);
  const { thinking: _thinking, output_config: _config, temperature, top_p, top_k, ...rest } = request;
  const thought = writeThinking(request, carry, target, notes);
  const body: Record<string, unknown> = {
    ...rest,
    model: target.upstreamModel,
    max_tokens: clampOutput(request.max_tokens, target) ?? target.maxOutputTokens,
    ...writeConversation(request, carry, target.ownAccount),
    ...(request.tools && { tools: request.tools.map(writeTool) }),
    ...thought,
    ...writeMetadata(request, carry),
  };
  // The tool loop may have no tools left, and upstreams refuse a choice among none.
  if (request.tools?.length === 0) {
    delete body["tools"];
    delete body["tool_choice"];
  }
  if (noteSampling(request, target, notes)) {
    const thinks = thought.thinking !== undefined && thought.thinking.type !== "disabled";
    const sampling = { temperature, top_p, top_k };
    Object.assign(body, carry.dialect === "messages" ? sampling : writeSampling(request, thinks, notes));
  }
  if (carry.dialect === "messages") leaveOut(body, notes);
  else writeStops(body, request, notes);
  return body as JsonObject;
}

/** Takes what no upstream is sent out of a Messages client's request. */
function leaveOut(body: Record<string, unknown>, notes: DropListener): void {
  for (const field of droppedToMessages) delete body[field];
  deleteUnsent(body, "", notes);
  for (const field of pricedObjects) {
    const object = objectOf(body[field]);
    if (object === null) continue;
    const copy: Record<string, unknown> = { ...object };
    deleteUnsent(copy, field, notes);
    body[field] = copy;
  }
}

/** @param field where the object stands; empty: it is the request. */
function deleteUnsent(object: Record<string, unknown>, field: string, notes: DropListener): void {
  for (const name of Object.keys(object)) {
    if (!isUnsent(field, name)) continue;
    if (object[name] !== null) notes.dropped(field === "" ? name : `${field}.${name}`);
    delete object[name];
  }
}

/** Lowest `top_p` that Messages takes with thinking; it also refuses any temperature other than 1 then. */
const LEAST_TOP_P_WITH_THINKING = 0.95;

/** Temperatures of Chat and Responses go up to 2, with any effort. */
function writeSampling(
  { temperature, top_p }: MessagesRequest,
  thinks: boolean,
  notes: DropListener,
): Pick<MessagesRequest, "temperature" | "top_p"> {
  const keepsTemperature = !thinks || (temperature ?? 1) >= 1;
  const keepsTopP = !thinks || (top_p ?? 1) >= LEAST_TOP_P_WITH_THINKING;
  if (!keepsTemperature) notes.dropped("temperature");
  if (!keepsTopP) notes.dropped("top_p");
  return {
    ...(keepsTemperature && temperature !== undefined && { temperature: Math.min(temperature, 1) }),
    ...(keepsTopP && top_p !== undefined && { top_p }),
  };
}

/** Adds the type "object" to a tool's schema, which Messages requires and the other dialects imply. */
function writeTool(tool: FunctionTool | JsonObject): FunctionTool | JsonObject {
  const schema = tool["input_schema"];
  return isObject(schema) && schema["type"] === undefined
    ? { ...tool, input_schema: { type: "object", ...schema } }
    : tool;
}

function writeThinking(
  request: MessagesRequest,
  carry: Carry,
  target: Target,
  notes: DropListener,
): Pick<MessagesRequest, "thinking" | "output_config"> {
  if (noteThinking(request, carry, target, notes)) return adaptiveThinking(request);
  const { effort: _effort, ...config } = request.output_config ?? {};
  return Object.keys(config).length === 0 ? {} : { output_config: config };
}

/** Writes the user id: a Messages client's unchanged, another's hashed if it is too long. */
function writeMetadata(request: MessagesRequest, carry: Carry): Pick<MessagesRequest, "metadata"> {
  const { metadata } = request;
  if (metadata === undefined || carry.dialect === "messages")
    return metadata === undefined ? {} : { metadata };
  const id = userId(request);
  return id === undefined ? {} : { metadata: { user_id: id } };
}

/** Messages refuses stop sequences of whitespace alone (dialects.md §D1), and an empty one stops nothing. */
function writeStops(body: Record<string, unknown>, request: MessagesRequest, notes: DropListener): void {
  const asked = request.stop_sequences?.filter((stop) => stop !== "") ?? [];
  const stops = asked.filter((stop) => stop.trim() !== "");
  // Only Chat clients have them, in the field `stop`.
  if (stops.length < asked.length) notes.dropped("stop");
  if (stops.length > 0) body["stop_sequences"] = stops;
  else delete body["stop_sequences"];
}

function writeConversation(
  request: MessagesRequest,
  carry: Carry,
  ownAccount: boolean,
): { messages: MessageParam[]; system?: MessagesRequest["system"] } {
  // A turn whose only content was reasoning that had to go is left out.
  const messages = request.messages
    .map((message) => writeMessage(message, ownAccount))
    .filter(({ role, content }) => role !== "assistant" || content.length > 0);
  // A model may write only blanks before its calls; these must not come back in the next iteration.
  if (carry.dialect === "messages")
    return {
      messages: withoutReasoningEnds(
        messages.flatMap((message) =>
          message.role === "assistant" ? (withoutBlankText(message) ?? []) : [message],
        ),
      ),
    };
  const kept = withoutBlankEnd(
    withoutReasoningEnds(messages.flatMap((message) => withoutBlankText(message) ?? [])),
  );
  const extra = wantsJsonObject(carry) ? [JSON_OBJECT_INSTRUCTION] : [];
  const system = [...(typeof request.system === "string" ? [request.system] : []), ...extra].join("\n");
  // Messages requires a user's turn: where there are only instructions, they become it.
  if (kept.length === 0 && hasOwnInstructions(request))
    return { messages: [{ role: "user", content: system }], system: undefined };
  refuseNothingSaid(request, carry, kept);
  return { messages: kept, system: isBlank(system) ? undefined : system };
}

/** Leaves out reasoning that no Messages upstream made, and unsigned reasoning (dialects.md §D2). */
function writeMessage(message: MessageParam, ownAccount: boolean): MessageParam {
  if (typeof message.content === "string") return message;
  const content = message.content.flatMap((block) => writeBlock(block, ownAccount) ?? []);
  return { ...message, content };
}

function writeBlock(block: ContentBlockParam, ownAccount: boolean): ContentBlockParam | null {
  if (block.type === "tool_use") return { ...block, input: exactInput(block.input) };
  if (block.type === "thinking") {
    const signature = signatureFor(block.signature, "messages", ownAccount);
    return signature === null ? null : { ...block, signature };
  }
  if (block.type !== "redacted_thinking") return block;
  const data = signatureFor(block.data, "messages", ownAccount);
  return data === null ? null : { ...block, data };
}

const isBlank = (text: string): boolean => text.trim() === "";

/**
 * Leaves out empty texts, and a turn's texts if all are blank: Messages refuses both, the other dialects allow them. null: nothing
 * is left.
 */
function withoutBlankText(message: MessageParam): MessageParam | null {
  if (typeof message.content === "string") return isBlank(message.content) ? null : message;
  const texts = message.content.flatMap((block) => (block.type === "text" ? [block.text] : []));
  // Blanks between texts with words are their spacing.
  const isGone = texts.every(isBlank) ? isBlank : (text: string) => text === "";
  const content = message.content
    .filter((block) => block.type !== "text" || !isGone(block.text))
    .map(withoutEmptyTexts);
  return content.length === 0 ? null : { ...message, content };
}

/**
 * Leaves out the reasoning that ends a turn of the model's, which Messages refuses. Neighbouring messages of the model's are one
 * turn: what it thought at the end of one, it goes on from in the next.
 */
function withoutReasoningEnds(messages: readonly MessageParam[]): MessageParam[] {
  const fromEnd: MessageParam[] = [];
  for (const message of messages.toReversed()) {
    const endsTurn = message.role === "assistant" && fromEnd.at(-1)?.role !== "assistant";
    const kept = endsTurn ? withoutReasoningEnd(message) : message;
    if (kept !== null) fromEnd.push(kept);
  }
  return fromEnd.reverse();
}

/** null: there is nothing but reasoning. */
function withoutReasoningEnd(message: MessageParam): MessageParam | null {
  if (typeof message.content === "string") return message;
  const end = message.content.findLastIndex((block) => !isReasoning(block)) + 1;
  return end === 0 ? null : { ...message, content: message.content.slice(0, end) };
}

const isReasoning = ({ type }: ContentBlockParam): boolean =>
  type === "thinking" || type === "redacted_thinking";

/** Leaves out the empty texts of a tool's result, which may itself be empty. */
function withoutEmptyTexts(block: ContentBlockParam): ContentBlockParam {
  if (block.type !== "tool_result" || typeof block.content !== "object") return block;
  const kept = block.content.filter((part) => part.type !== "text" || part.text !== "");
  return kept.length === block.content.length ? block : { ...block, content: kept.length === 0 ? "" : kept };
}

/**
 * Cuts the white space that ends the conversation where its last turn is the model's, to be gone on with: Messages refuses
 * it, the other dialects allow it.
 */
function withoutBlankEnd(messages: MessageParam[]): MessageParam[] {
  const last = messages.at(-1);
  if (last?.role !== "assistant") return messages;
  return [...messages.slice(0, -1), { ...last, content: withoutEnd(last.content) }];
}

function withoutEnd(content: MessageParam["content"]): MessageParam["content"] {
  if (typeof content === "string") return content.trimEnd();
  const end = content.findLastIndex((block) =>
    block.type === "text" ? !isBlank(block.text) : !isReasoning(block),
  );
  const last = content[end];
  if (last?.type !== "text") return content.slice(0, end + 1);
  return [...content.slice(0, end), { ...last, text: last.text.trimEnd() }];
}
