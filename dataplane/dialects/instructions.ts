/** Instructions of a request in the hub: the leading ones as one text, and those that stand in its middle. */
import type { Carry } from "./codecs.ts";
import { arrayOf, objectOf } from "./fields.ts";
import type {
  ContentBlockParam,
  FunctionTool,
  JsonObject,
  MessageParam,
  MessagesRequest,
} from "./messages/types.ts";
import { plainBlockText } from "./plain-blocks.ts";

/** Claude Code's first block; it changes with each session and would break an upstream's prompt cache (rule 2.11). */
const BILLING_HEADER = "x-anthropic-billing-header";

/** Where the service's own instruction begins in a system prompt (service.md "Citations in Responses and Chat"). */
export const INSTRUCTION_MARK = "[svc:servertools]";

/** Joins the leading instructions; undefined when there are none. */
export function instructionsOf(request: MessagesRequest): string | undefined {
  const { system } = request;
  const texts = typeof system === "string" ? [system] : (system ?? []).map(({ text }) => text);
  const kept = texts.filter((text) => text !== "" && !text.startsWith(BILLING_HEADER));
  return kept.length === 0 ? undefined : kept.join("\n");
}

/** Whether the instructions hold text of the client's own, which can stand for a conversation without turns. */
export const hasOwnInstructions = (request: MessagesRequest): boolean =>
  (instructionsOf(request)?.split(INSTRUCTION_MARK, 1)[0] ?? "").trim() !== "";

/**
 * The text of a system turn; blocks that change tools are in its tools (`allTools`).
 * @throws ApiError `unsupported_content` for any other block, which instructions cannot hold.
 */
export const systemTurnText = (content: string | readonly ContentBlockParam[], carry: Carry): string =>
  typeof content === "string"
    ? content
    : content
        .filter(({ type }) => !isToolChange(type))
        .map((block) => plainBlockText(block, carry, " in system turns"))
        .join("\n");

const isToolChange = (type: unknown): boolean => type === "tool_addition" || type === "tool_removal";

/** A tool's name in system turns. A toolset has none: it goes by its family, such as `computer`, which no other tool may. */
const nameOf = ({ name, type }: FunctionTool | JsonObject): unknown =>
  name ?? (typeof type === "string" ? type.replace(/_toolset_\d{8}$/, "") : undefined);

/**
 * Returns the tools after all changes by system turns. One defined there replaces another of its name; a removed one
 * comes back when it is added again.
 */
export function allTools({ tools = [], messages }: MessagesRequest): (FunctionTool | JsonObject)[] {
  const all = [...tools];
  const places = new Map<unknown, number>(all.map((tool, place) => [nameOf(tool), place]));
  const removed = new Set<unknown>();
  for (const { type, tool } of messages.flatMap(changesIn)) {
    const change = objectOf(tool) ?? {};
    const definition = objectOf(change["definition"]);
    const name = definition === null ? change["name"] : nameOf(definition);
    if (type === "tool_removal") removed.add(name);
    else removed.delete(name);
    if (type === "tool_removal" || definition === null) continue;
    const place = places.get(name) ?? all.length;
    places.set(name, place);
    all[place] = definition;
  }
  return removed.size === 0 ? all : all.filter((tool) => !removed.has(nameOf(tool)));
}

const changesIn = ({ role, content }: MessageParam): JsonObject[] =>
  role !== "system" || typeof content === "string"
    ? []
    : content.map((block) => block as unknown as JsonObject).filter(({ type }) => isToolChange(type));

/**
 * Moves the system turns of a conversation to the leading instructions, for an upstream that takes none in the middle
 * (dialects.md §D1); null when there are none.
 */
export function hoistSystemTurns(request: MessagesRequest, carry: Carry): MessagesRequest | null {
  const messages = request.messages.filter(({ role }) => role !== "system");
  if (messages.length === request.messages.length) return null;
  const texts = request.messages
    .flatMap(({ role, content }) => (role === "system" ? [systemTurnText(content, carry)] : []))
    .filter((text) => text !== "");
  const { system } = request;
  const rest = { ...request, messages, ...toolsLeft(request) };
  if (typeof system === "object")
    return {
      ...rest,
      system: [...system, ...texts.map((text) => ({ type: "text" as const, text }))],
    };
  const all = [...(system === undefined || system === "" ? [] : [system]), ...texts];
  return { ...rest, ...(all.length > 0 && { system: all.join("\n") }) };
}

/** What a system turn may say beside its text, and what asks for nothing (dialects.md §B). */
const turnFields: Readonly<Record<string, unknown>> = { clear_at: "never", output_config: undefined };

/** Names what the system turns of a Messages client say beside their text, where `request` has them no more. */
export function lostWithSystemTurns(client: JsonObject, { messages }: MessagesRequest): string[] {
  if (messages.some(({ role }) => role === "system")) return [];
  const lost = new Set<string>();
  for (const entry of arrayOf(client["messages"]) ?? []) {
    const turn = objectOf(entry);
    if (turn?.["role"] !== "system") continue;
    for (const [key, nothing] of Object.entries(turnFields))
      if ((turn[key] ?? null) !== null && turn[key] !== nothing) lost.add(`messages.${key}`);
  }
  return [...lost];
}

/** Whether the model has to call a tool. */
export const demandsCall = ({ tool_choice: choice }: Pick<MessagesRequest, "tool_choice">): boolean =>
  choice?.type === "any" || choice?.type === "tool";

/** If all tools were removed they stay, for the calls that were made before, and none may be called. */
function toolsLeft(request: MessagesRequest): Pick<MessagesRequest, "tools" | "tool_choice"> {
  const tools = allTools(request);
  if (tools.length > 0) return { tools };
  return (request.tools ?? []).length === 0 ? {} : { tool_choice: { type: "none" } };
}
