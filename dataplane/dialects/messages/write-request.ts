/** A request in the hub, for a Messages upstream. What the client sent in this dialect stays as it is. */
import type { Carry, Target } from "../codecs.ts";
import type { DropListener } from "../drop-listener.ts";
import { adaptiveThinking } from "../effort.ts";
import { exactInput } from "../exact-inputs.ts";
import { wantsJsonObject } from "../formats.ts";
import { clampOutput, noteSampling, noteThinking, refuseMedia } from "../capabilities.ts";
import { hasOwnInstructions } from "../instructions.ts";
import { noteLosses } from "../losses.ts";
import { fields as requestFields } from "../request-fields.ts";
import { signatureFor } from "../reasoning.ts";
import { refuseNothingSaid } from "../upstream-checks.ts";
import { userId } from "../user-id.ts";
import type { ContentBlockParam, FunctionTool, JsonObject, MessageParam, MessagesRequest } from "./types.ts";
import { isObject } from "../../lib/json-object.ts";

/** Put at the end of the instructions: Messages has no mode for JSON without a schema (dialects.md §D1). */
const JSON_OBJECT_INSTRUCTION = "Respond with one valid JSON object and nothing else.";

/** What even a Messages upstream may not see of a Messages client's request. */
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
  // A loop may have none left, and a choice among none is refused.
  if (request.tools?.length === 0) {
    delete body["tools"];
    delete body["tool_choice"];
  }
  if (noteSampling(request, target, notes)) {
    const thinks = thought.thinking !== undefined && thought.thinking.type !== "disabled";
    const sampling = { temperature, top_p, top_k };
    Object.assign(body, carry.dialect === "messages" ? sampling : writeSampling(request, thinks, notes));
  }
  if (carry.dialect === "messages") for (const field of droppedToMessages) delete body[field];
  else writeStops(body, request, notes);
  return body as JsonObject;
}

/** With thinking Messages refuses any other temperature than 1, and a `top_p` below this. */
const LEAST_TOP_P_WITH_THINKING = 0.95;

/** Chat's and Responses' temperature goes up to 2, and with any effort. */
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

/** Messages wants the schema of every input to say that it is an object; the other dialects take that as said. */
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

/** The client's own user id stays; one that comes from another dialect has to fit. */
function writeMetadata(request: MessagesRequest, carry: Carry): Pick<MessagesRequest, "metadata"> {
  const { metadata } = request;
  if (metadata === undefined || carry.dialect === "messages")
    return metadata === undefined ? {} : { metadata };
  const id = userId(request);
  return id === undefined ? {} : { metadata: { user_id: id } };
}

/** Whitespace alone is refused here (dialects.md §D1), and nothing at all stops nothing. */
function writeStops(body: Record<string, unknown>, request: MessagesRequest, notes: DropListener): void {
  const asked = request.stop_sequences?.filter((stop) => stop !== "") ?? [];
  const stops = asked.filter((stop) => stop.trim() !== "");
  // Only Chat clients have them, and call them so.
  if (stops.length < asked.length) notes.dropped("stop");
  if (stops.length > 0) body["stop_sequences"] = stops;
  else delete body["stop_sequences"];
}

function writeConversation(
  request: MessagesRequest,
  carry: Carry,
  ownAccount: boolean,
): { messages: MessageParam[]; system?: MessagesRequest["system"] } {
  // A turn of nothing but reasoning that had to go is none any more.
  const messages = request.messages
    .map((message) => writeMessage(message, ownAccount))
    .filter(({ role, content }) => role !== "assistant" || content.length > 0);
  // A model may say nothing but blanks before its calls, which must not come back in the next iteration.
  if (carry.dialect === "messages")
    return {
      messages: messages.flatMap((message) =>
        message.role === "assistant" ? (withoutBlankText(message) ?? []) : [message],
      ),
    };
  const kept = messages.flatMap((message) => withoutBlankText(message) ?? []);
  const extra = wantsJsonObject(carry) ? [JSON_OBJECT_INSTRUCTION] : [];
  const system = [...(typeof request.system === "string" ? [request.system] : []), ...extra].join("\n");
  // Messages wants a user's turn: where there are only instructions, they are it.
  if (kept.length === 0 && hasOwnInstructions(request))
    return { messages: [{ role: "user", content: system }], system: undefined };
  refuseNothingSaid(request, carry, kept);
  return { messages: kept, system: isBlank(system) ? undefined : system };
}

/** Reasoning that this dialect's upstreams did not make, and unsigned reasoning, is left out (dialects.md §D2). */
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

/** Messages refuses empty text, and a turn whose texts are all blank; the other dialects allow both. */
function withoutBlankText(message: MessageParam): MessageParam | null {
  if (typeof message.content === "string") return isBlank(message.content) ? null : message;
  const texts = message.content.flatMap((block) => (block.type === "text" ? [block.text] : []));
  // Between texts that say something blanks are their spacing.
  const isGone = texts.every(isBlank) ? isBlank : (text: string) => text === "";
  const content = message.content.filter((block) => block.type !== "text" || !isGone(block.text));
  return content.length === 0 ? null : { ...message, content };
}
