/**
 * Writes a conversation in the hub as Chat messages. Chat wants all `tool` messages right after the assistant's calls
 * and allows only text in them: any other content of a result follows in one user message (rule 2.9).
 */
import { aliasOfChatId } from "../alias.ts";
import { writeArguments } from "../arguments.ts";
import { behindBlankLine } from "../blank-line.ts";
import type { Carry, Target } from "../codecs.ts";
import { instructionsOf, systemTurnText } from "../instructions.ts";
import type {
  ContentBlockParam,
  JsonObject,
  MessageParam,
  MessagesRequest,
  ToolResultBlock,
} from "../messages/types.ts";
import { plainBlockText } from "../plain-blocks.ts";
import { readMark } from "../reasoning.ts";
import { type PartForm, writeParts } from "../write-parts.ts";

export function writeMessages(request: MessagesRequest, carry: Carry, target: Target): JsonObject[] {
  const system = instructionsOf(request);
  // Lists of lists, because a conversation may have more messages than a call can have arguments.
  const written: JsonObject[][] = system === undefined ? [] : [[{ role: "system", content: system }]];
  let between: MessageParam[] = [];
  // In Messages neighbouring assistant turns are one: the results of their calls follow all of them.
  let turns: Content[] = [];
  let calls = false;
  for (const message of request.messages) {
    if (message.role !== "assistant") {
      between.push(message);
      continue;
    }
    if (!calls || between.length > 0) {
      written.push(writeAssistant(joined(turns), carry, target), writeBetween(between, carry));
      between = [];
      turns = [];
      calls = false;
    }
    turns.push(message.content);
    calls ||= makesCalls(message.content);
  }
  written.push(writeAssistant(joined(turns), carry, target), writeBetween(between, carry));
  return written.flat();
}

type Content = MessageParam["content"];

const makesCalls = (content: Content): boolean =>
  typeof content !== "string" && content.some(({ type }) => type === "tool_use");

/** Joins neighbouring turns of the model, with a blank line between their texts. */
function joined(turns: readonly Content[]): Content {
  const [first, ...others] = turns;
  if (first !== undefined && others.length === 0) return first;
  const blocks: ContentBlockParam[] = [];
  let before: string | undefined;
  for (const turn of turns) {
    let isFirst = true;
    for (const block of typeof turn === "string" ? [{ type: "text", text: turn } as const] : turn) {
      if (block.type !== "text") {
        blocks.push(block);
        continue;
      }
      const text: string = isFirst ? behindBlankLine(before, block.text) : block.text;
      blocks.push({ ...block, text });
      before = text;
      isFirst = false;
    }
  }
  return blocks;
}

/** Writes the messages between two assistant turns: tool results first, then those of users and the system. */
function writeBetween(messages: readonly MessageParam[], carry: Carry): JsonObject[] {
  const media: JsonObject[] = [];
  const results = messages.flatMap(({ content }) =>
    typeof content === "string"
      ? []
      : content.flatMap((block) => (block.type === "tool_result" ? [writeResult(block, media, carry)] : [])),
  );
  const said = messages.flatMap(({ role, content }) => writeSaid(role, content, carry));
  return [...results, ...(media.length > 0 ? [{ role: "user", content: media }] : []), ...said];
}

function writeSaid(role: MessageParam["role"], content: MessageParam["content"], carry: Carry): JsonObject[] {
  if (role === "system") {
    const text = systemTurnText(content, carry);
    return text === "" ? [] : [{ role, content: text }];
  }
  if (typeof content === "string") return [{ role, content }];
  const blocks = content.filter(({ type }) => type !== "tool_result");
  if (blocks.length === 0) return [];
  const parts = blocks.flatMap((block) => writeParts(block, carry, partForm));
  const [only] = parts;
  const isBareText = parts.length === 1 && only?.["type"] === "text" && Object.keys(only).length === 2;
  return [{ role, content: isBareText ? (only["text"] ?? "") : parts }];
}

function writeResult(block: ToolResultBlock, media: JsonObject[], carry: Carry): JsonObject {
  const { content = "", is_error } = block;
  const id = aliasOfChatId(block.tool_use_id);
  const prefix = is_error === true ? "Error: " : "";
  if (typeof content === "string") return { role: "tool", tool_call_id: id, content: prefix + content };
  const texts: string[] = [];
  const others: JsonObject[] = [];
  for (const part of content.flatMap((inner) => writeParts(inner, carry, partForm)))
    if (typeof part["text"] === "string") texts.push(part["text"]);
    else others.push(part);
  if (others.length > 0) {
    texts.push("[The other content of this result is in the next user message.]");
    media.push({ type: "text", text: `Content of the result of tool call ${id}:` }, ...others);
  }
  return { role: "tool", tool_call_id: id, content: prefix + texts.join("\n") };
}

const partForm: PartForm = {
  text: (text) => ({ type: "text", text }),
  image: (url, detail) => ({
    type: "image_url",
    image_url: { url, ...(detail !== undefined && { detail }) },
  }),
  file: (file) => ({ type: "file", file }),
};

function writeAssistant(content: MessageParam["content"], carry: Carry, target: Target): JsonObject[] {
  if (typeof content === "string") return [{ role: "assistant", content }];
  const texts: string[] = [];
  const thoughts: string[] = [];
  const calls: JsonObject[] = [];
  for (const block of content) {
    if (block.type === "thinking") {
      // Reasoning that never was sealed may be anybody's (rule 2.17).
      if (readMark(block.signature)?.from !== "raw") thoughts.push(block.thinking);
    } else if (block.type === "tool_use")
      calls.push({
        id: aliasOfChatId(block.id),
        type: "function",
        function: { name: block.name, arguments: writeArguments(block.input) },
      });
    else if (block.type !== "redacted_thinking") texts.push(plainBlockText(block, carry));
  }
  // Only models with thinking know the field; others may refuse it.
  const reasoning = target.thinking ? thoughts.filter((text) => text !== "").join("\n\n") : "";
  const text = texts.join("");
  if (text === "" && calls.length === 0 && reasoning === "") return [];
  return [
    {
      role: "assistant",
      content: text === "" && calls.length > 0 ? null : text,
      ...(reasoning !== "" && { reasoning_content: reasoning }),
      ...(calls.length > 0 && { tool_calls: calls }),
    },
  ];
}
