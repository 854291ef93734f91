/** Writes a conversation in the hub as Responses input items. */
import { writeArguments } from "../arguments.ts";
import type { Carry, Target } from "../codecs.ts";
import { systemTurnText } from "../instructions.ts";
import type {
  ContentBlockParam,
  JsonObject,
  MessageParam,
  MessagesRequest,
  ThinkingBlock,
  ToolResultBlock,
} from "../messages/types.ts";
import { plainBlockText } from "../plain-blocks.ts";
import { readMark, signatureFor } from "../reasoning.ts";
import { type PartForm, writeParts } from "../write-parts.ts";

export const writeInput = (request: MessagesRequest, carry: Carry, target: Target): JsonObject[] =>
  request.messages.flatMap((message) => writeMessage(message, carry, target));

function writeMessage({ role, content }: MessageParam, carry: Carry, target: Target): JsonObject[] {
  if (role === "system") {
    const text = systemTurnText(content, carry);
    return text === "" ? [] : [message("developer", text)];
  }
  if (typeof content === "string") return [message(role, content)];
  return role === "user" ? writeUser(content, carry) : writeAssistant(content, carry, target);
}

const message = (role: string, content: string | JsonObject[]): JsonObject => ({
  type: "message",
  role,
  content,
});

function writeUser(content: readonly ContentBlockParam[], carry: Carry): JsonObject[] {
  const results = content.flatMap((block) =>
    block.type === "tool_result" ? [writeResult(block, carry)] : [],
  );
  const parts = content.flatMap((block) =>
    block.type === "tool_result" ? [] : writeParts(block, carry, partForm),
  );
  return parts.length === 0 ? results : [...results, message("user", parts)];
}

function writeResult({ tool_use_id, content = "", is_error }: ToolResultBlock, carry: Carry): JsonObject {
  const prefix = is_error === true ? "Error: " : "";
  return { type: "function_call_output", call_id: tool_use_id, output: writeOutput(content, prefix, carry) };
}

function writeOutput(
  content: NonNullable<ToolResultBlock["content"]>,
  prefix: string,
  carry: Carry,
): string | JsonObject[] {
  if (typeof content === "string") return prefix + content;
  const parts = content.flatMap((block) => writeParts(block, carry, partForm));
  const texts = parts.flatMap(({ text }) => (typeof text === "string" ? [text] : []));
  if (texts.length === parts.length) return prefix + texts.join("\n");
  return prefix === "" ? parts : prefixed(parts, prefix);
}

/** Puts the prefix into the first text, or into a part of its own where there is none. */
function prefixed(parts: readonly JsonObject[], prefix: string): JsonObject[] {
  const first = parts.findIndex(({ text }) => typeof text === "string");
  const text = parts[first]?.["text"];
  return typeof text === "string"
    ? parts.with(first, textPart(prefix + text))
    : [textPart(prefix.trim()), ...parts];
}

const textPart = (text: string): JsonObject => ({ type: "input_text", text });

const partForm: PartForm = {
  text: textPart,
  image: (url, detail) => ({ type: "input_image", image_url: url, detail: detail ?? "auto" }),
  file: (file) => ({ type: "input_file", ...file }),
  fileUrl: (url) => ({ type: "input_file", file_url: url }),
};

/**
 * Writes an assistant's turn in the order of its blocks. Neighbouring texts become one message in the easy form, whose
 * content is a string: its parts would need the ids and states of the original answer.
 */
function writeAssistant(
  content: readonly ContentBlockParam[],
  carry: Carry,
  { ownAccount }: Target,
): JsonObject[] {
  const items: JsonObject[] = [];
  let text = "";
  const closeMessage = () => {
    if (text !== "") items.push(message("assistant", text));
    text = "";
  };
  for (const block of content) {
    if (block.type === "thinking") {
      const item = writeReasoningItem(block, ownAccount);
      if (item === null) continue;
      closeMessage();
      items.push(item);
    } else if (block.type === "tool_use") {
      closeMessage();
      items.push(writeCall(block));
    } else if (block.type !== "redacted_thinking") text += plainBlockText(block, carry);
  }
  closeMessage();
  return items;
}

const writeCall = ({ id, name, input }: Extract<ContentBlockParam, { type: "tool_use" }>): JsonObject => ({
  type: "function_call",
  call_id: id,
  name,
  arguments: writeArguments(input),
});

/** Only reasoning that a Responses upstream made and sealed itself goes back to it (dialects.md §D2). */
function writeReasoningItem({ thinking, signature }: ThinkingBlock, ownAccount: boolean): JsonObject | null {
  const encrypted = signatureFor(signature, "responses", ownAccount);
  const mark = readMark(signature);
  if (encrypted === null || mark === null || mark.from === "chat") return null;
  const summary = thinking === "" ? [] : [{ type: "summary_text", text: thinking }];
  // Codex sends no id back; an empty one is refused.
  return { type: "reasoning", ...(mark.id !== "" && { id: mark.id }), summary, encrypted_content: encrypted };
}
