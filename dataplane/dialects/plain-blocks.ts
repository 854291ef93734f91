/** Blocks that only Messages knows, as text for the others. Those of our server tools were restored before. */
import type { ContentBlockParam, JsonObject } from "./messages/types.ts";

/** The text that stands for a block; null when nothing can. */
export function plainBlockText(block: ContentBlockParam): string | null {
  switch (block.type) {
    case "text":
      return block.text;
    case "search_result":
      return [`${block.title} (${block.source})`, ...block.content.map(({ text }) => text)].join("\n");
    default:
      return toolReference(block as unknown as JsonObject);
  }
}

/** A tool search's answer: the model sees every tool, so the name is enough. */
const toolReference = (block: JsonObject): string | null =>
  block["type"] === "tool_reference" && typeof block["tool_name"] === "string"
    ? `[tool ${block["tool_name"]}]`
    : null;
