/** Instructions of a request in the hub: the leading ones as one text, and those that stand in its middle. */
import { objectOf } from "./fields.ts";
import type {
  ContentBlockParam,
  FunctionTool,
  JsonObject,
  MessageParam,
  MessagesRequest,
} from "./messages/types.ts";

/** Claude Code's first block; it changes with each session and would break an upstream's prompt cache (rule 2.11). */
const BILLING_HEADER = "x-anthropic-billing-header";

/** Undefined when there are none. */
export function instructionsOf(request: MessagesRequest): string | undefined {
  const { system } = request;
  const texts = typeof system === "string" ? [system] : (system ?? []).map(({ text }) => text);
  const kept = texts.filter((text) => text !== "" && !text.startsWith(BILLING_HEADER));
  return kept.length === 0 ? undefined : kept.join("\n");
}

/** The text of a system turn; blocks that change tools say nothing to a model that sees all tools (`allTools`). */
export const systemTurnText = (content: string | readonly ContentBlockParam[]): string =>
  typeof content === "string"
    ? content
    : content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n");

/** The tools of a request, and those that its system turns define (`tool_addition`), each name once. */
export function allTools({ tools = [], messages }: MessagesRequest): (FunctionTool | JsonObject)[] {
  const names = new Set<unknown>(tools.map(({ name }) => name));
  const all = [...tools];
  for (const tool of messages.flatMap(definedIn)) {
    if (names.has(tool["name"])) continue;
    names.add(tool["name"]);
    all.push(tool);
  }
  return all;
}

const definedIn = ({ role, content }: MessageParam): JsonObject[] =>
  role !== "system" || typeof content === "string"
    ? []
    : content.flatMap((block) => definitionIn(block as unknown as JsonObject));

/** The tool that a block brings into the conversation; none for any other block. */
function definitionIn({ type, tool }: JsonObject): JsonObject[] {
  const definition = type === "tool_addition" ? objectOf(objectOf(tool)?.["definition"]) : null;
  return definition === null ? [] : [definition];
}

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
  const tools = allTools(request);
  const rest = { ...request, messages, ...(tools.length > 0 && { tools }) };
  if (typeof system === "object")
    return {
      ...rest,
      system: [...system, ...texts.map((text) => ({ type: "text" as const, text }))],
    };
  const all = [...(system === undefined || system === "" ? [] : [system]), ...texts];
  return { ...rest, ...(all.length > 0 && { system: all.join("\n") }) };
}
