/** The leading instructions of a request in the hub, as one text for Chat and Responses upstreams. */
import type { ContentBlockParam, MessagesRequest } from "./messages/types.ts";

/** Claude Code's first block; it changes with each session and would break an upstream's prompt cache (rule 2.11). */
const BILLING_HEADER = "x-anthropic-billing-header";

/** Undefined when there are none. */
export function instructionsOf(request: MessagesRequest): string | undefined {
  const { system } = request;
  const texts = typeof system === "string" ? [system] : (system ?? []).map(({ text }) => text);
  const kept = texts.filter((text) => text !== "" && !text.startsWith(BILLING_HEADER));
  return kept.length === 0 ? undefined : kept.join("\n");
}

/** The text of a system turn; blocks that change tools say nothing to a model that sees all tools. */
export const systemTurnText = (content: string | readonly ContentBlockParam[]): string =>
  typeof content === "string"
    ? content
    : content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n");
