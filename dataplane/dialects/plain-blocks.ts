/** Blocks that only Messages knows, as text for the others. */
import type { ContentBlockParam, JsonObject, WebSearchToolResultBlock } from "./messages/types.ts";

/** The text that stands for a block; null when nothing can. */
export function plainBlockText(block: ContentBlockParam): string | null {
  switch (block.type) {
    case "text":
      return block.text;
    case "search_result":
      return [`${block.title} (${block.source})`, ...block.content.map(({ text }) => text)].join("\n");
    case "server_tool_use":
      return `[${block.name} ${JSON.stringify(block.input)}]`;
    case "web_search_tool_result":
      return searchResults(block);
    case "web_fetch_tool_result":
      return block.content.type === "web_fetch_result"
        ? `[fetched ${block.content.url}]`
        : `[fetch failed: ${block.content.error_code}]`;
    default:
      return toolReference(block as unknown as JsonObject);
  }
}

const searchResults = ({ content }: WebSearchToolResultBlock): string =>
  Array.isArray(content)
    ? content.map(({ title, url }) => `- ${title} (${url})`).join("\n")
    : `[search failed: ${content.error_code}]`;

/** A tool search's answer: the model sees every tool, so the name is enough. */
const toolReference = (block: JsonObject): string | null =>
  block["type"] === "tool_reference" && typeof block["tool_name"] === "string"
    ? `[tool ${block["tool_name"]}]`
    : null;
