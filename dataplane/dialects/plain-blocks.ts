/** Writes blocks that only Messages has as text for the others. Blocks of our server tools were restored before. */
import { unsupportedContent } from "./capabilities.ts";
import type { Carry } from "./codecs.ts";
import type { ContentBlockParam, JsonObject } from "./messages/types.ts";

/**
 * The text that stands for a block. `where`: words for its place, if others may hold what it does not.
 * @throws ApiError `unsupported_content` when nothing can.
 */
export function plainBlockText(block: ContentBlockParam, carry: Carry, where = ""): string {
  switch (block.type) {
    case "text":
      return block.text;
    case "search_result":
      return [`${block.title} (${block.source})`, ...block.content.map(({ text }) => text)].join("\n");
    default: {
      const text = toolReference(block as unknown as JsonObject);
      if (text === null) throw unsupportedContent(block, carry, `${block.type} blocks${where}`);
      return text;
    }
  }
}

/** A tool search's answer: the model sees every tool, so the name is enough. */
const toolReference = (block: JsonObject): string | null =>
  block["type"] === "tool_reference" && typeof block["tool_name"] === "string"
    ? `[tool ${block["tool_name"]}]`
    : null;
