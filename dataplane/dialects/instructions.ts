/** Instructions of a request in the hub: the leading ones as one text, and those that stand in its middle. */
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

/**
 * The request with the system turns of its conversation among the leading instructions, for an upstream that
 * takes none in the middle (dialects.md §D1); null when there are none.
 */
export function hoistSystemTurns(request: MessagesRequest): MessagesRequest | null {
  const messages = request.messages.filter(({ role }) => role !== "system");
  if (messages.length === request.messages.length) return null;
  const texts = request.messages
    .flatMap(({ role, content }) => (role === "system" ? [systemTurnText(content)] : []))
    .filter((text) => text !== "");
  const { system } = request;
  if (typeof system === "object")
    return {
      ...request,
      messages,
      system: [...system, ...texts.map((text) => ({ type: "text" as const, text }))],
    };
  const all = [...(system === undefined || system === "" ? [] : [system]), ...texts];
  return { ...request, messages, ...(all.length > 0 && { system: all.join("\n") }) };
}
