/** Refuses, in the client's terms, what an upstream of another dialect cannot be asked for. */
import { ApiError } from "../lib/api-error.ts";
import type { Carry } from "./codecs.ts";
import type { DropListener } from "./drop-listener.ts";
import type { Dialect } from "./dialect.ts";
import { allTools, demandsCall, hasOwnInstructions } from "./instructions.ts";
import type { FunctionTool, JsonObject, MessagesRequest } from "./messages/types.ts";

const isFunctionTool = (tool: FunctionTool | JsonObject): tool is FunctionTool =>
  (tool.type ?? "custom") === "custom";

/**
 * Returns the tools. A choice that demands a call where system turns took all tools away is dropped (rule 2.2), as Chat
 * and Responses refuse it.
 * @throws ApiError `unsupported_tool` for a typed tool, which only a Messages upstream knows (dialects.md §D1).
 */
export function functionTools(request: MessagesRequest, carry: Carry, notes: DropListener): FunctionTool[] {
  const tools = allTools(request);
  if (tools.length === 0 && demandsCall(request)) notes.dropped("tool_choice");
  return tools.map((tool) => {
    if (isFunctionTool(tool)) return tool;
    const path = carry.places.get(tool) ?? "tools";
    throw new ApiError(
      "unsupported_tool",
      `${path}: tools of type ${JSON.stringify(tool.type).slice(0, 60)} are not supported for this model`,
      { param: path },
    );
  });
}

/**
 * Only Messages knows a prefill: a conversation of Chat or Responses may end in an assistant's turn, and the next one
 * follows it (rule 2.1).
 * @throws ApiError when a Messages client wants its own beginning of an answer continued (dialects.md §D1).
 */
export function refusePrefill(request: MessagesRequest, carry: Carry): void {
  const last = request.messages.findLast(({ role }) => role !== "system");
  if (carry.dialect !== "messages" || last?.role !== "assistant") return;
  const path = carry.places.get(last) ?? "messages";
  throw new ApiError(
    "invalid_request",
    `${path}: this model does not support assistant message prefill. The conversation must end with a user message.`,
    { param: path },
  );
}

/** A turn of any dialect; an item of Responses that is no message has no role. */
interface Turn {
  readonly role?: unknown;
}

/**
 * Refuses a conversation of which nothing is left to answer: an empty turn cannot be written in every dialect. Without
 * the user's last turn the model would continue its previous answer, and without any the upstream's refusal would name
 * nothing.
 * @param written the turns that are left; without any, the client's own instructions are enough.
 * @throws ApiError that names the conversation.
 */
export function refuseNothingSaid(request: MessagesRequest, carry: Carry, written: readonly Turn[]): void {
  const last = (turns: readonly Turn[]) =>
    turns.findLast(({ role }) => role !== "system" && role !== "developer")?.role;
  const said = written.length > 0 || hasOwnInstructions(request);
  if (said && !(last(request.messages) === "user" && last(written) === "assistant")) return;
  throw nothingSaid(carry.dialect);
}

/** The error for a conversation without anything to answer. */
export function nothingSaid(client: Dialect): ApiError {
  const param = client === "responses" ? "input" : "messages";
  return new ApiError("invalid_request", `${param}: the last turn has no content that this model takes.`, {
    param,
  });
}
