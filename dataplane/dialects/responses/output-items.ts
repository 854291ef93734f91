/** Makes the output items of a Responses answer, whole and as they begin (service.md "Response", dialects.md §C3, §E). */
import type { Annotate, Carry, CodecContext } from "../codecs.ts";
import { arrayOf, objectOf, stringOf } from "../fields.ts";
import { isServerToolName } from "../find-server-tool.ts";
import { sealReasoning } from "../reasoning.ts";
import { serverTools, type ServerToolName } from "../server-tools.ts";
import { isWholeInput } from "../tool-input.ts";
import { clientTool } from "../tool-name.ts";
import type {
  JsonObject,
  Logprob,
  RedactedThinkingBlock,
  ServerToolUseBlock,
  ThinkingBlock,
  ToolUseBlock,
  UrlCitation,
  WebFetchToolResultBlock,
  WebSearchToolResultBlock,
} from "../messages/types.ts";

type ItemStatus = "in_progress" | "completed" | "incomplete" | "failed";

export const messageItem = (id: string, status: ItemStatus, content: JsonObject[]): JsonObject => ({
  id,
  type: "message",
  status,
  role: "assistant",
  content,
});

export const textPart = (
  text: string,
  annotations: JsonObject[],
  logprobs: readonly Logprob[] = [],
): JsonObject => ({
  type: "output_text",
  text,
  annotations,
  logprobs: [...logprobs],
});

/** Returns citations in the form of Responses: flat, with indexes in their own content part. `own`: the upstream's. */
export const annotationsOf = (
  text: string,
  annotate: Annotate | undefined,
  own: readonly UrlCitation[] = [],
): JsonObject[] => (annotate?.(text) ?? own).map((citation) => ({ type: "url_citation", ...citation }));

/** Returns the status of a call that has ended: one that the output limit cut is incomplete. */
export const callStatus = (args: string): ItemStatus => (isWholeInput(args) ? "completed" : "incomplete");

/** The item of a call of the client's function, under the name that the client gave it. @param args JSON text, so far */
export function functionCallItem(
  id: string,
  block: Pick<ToolUseBlock, "id" | "name">,
  args: string,
  status: ItemStatus,
  carry: Carry,
): JsonObject {
  const { name, namespace } = clientTool(block.name, carry);
  return {
    id,
    type: "function_call",
    status,
    call_id: block.id,
    name,
    ...(namespace === null ? {} : { namespace }),
    arguments: args,
  };
}

/** Whether the client asked for encrypted reasoning, which lets it send reasoning back. */
const includesReasoning = (carry: Carry): boolean =>
  arrayOf(carry.request["include"])?.includes("reasoning.encrypted_content") === true;

/**
 * Makes a reasoning item, with its encrypted content where the client asked for it or the item is kept.
 * @param told what stands for the text of thinking (numbered-events.ts).
 */
export function reasoningItem(
  id: string,
  block: ThinkingBlock | RedactedThinkingBlock,
  carry: Carry,
  context: CodecContext,
  told = block.type === "thinking" ? block.thinking : "",
): JsonObject {
  const summary = told === "" ? [] : [{ type: "summary_text", text: told }];
  return {
    id,
    type: "reasoning",
    summary,
    ...(includesReasoning(carry) || context.keepItem !== undefined
      ? { encrypted_content: sealReasoning(block, context.sealer) }
      : {}),
  };
}

/** Keeps a finished item whole, and returns it as the client sees it. @param write writes the item that is kept as JSON. */
export function finishedItem(
  item: JsonObject,
  carry: Carry,
  context: CodecContext,
  write: (item: JsonObject) => string = JSON.stringify,
): JsonObject {
  if (typeof item["id"] === "string") context.keepItem?.(item["id"], write(item));
  if (item["encrypted_content"] === undefined || includesReasoning(carry)) return item;
  const shown = { ...item };
  delete shown["encrypted_content"];
  return shown;
}

export type ToolResult = WebSearchToolResultBlock | WebFetchToolResultBlock;

/** A server tool's call. `action` shows what it does, a fetch as an opened page. */
export interface ServerCall {
  readonly id: string;
  readonly type: (typeof serverTools)[ServerToolName]["item"];
  readonly action: JsonObject;
}

/** Null for a tool that only a provider has: Responses has no item for it. */
export function serverCall(block: ServerToolUseBlock, context: CodecContext): ServerCall | null {
  if (!isServerToolName(block.name)) return null;
  const { item, itemPrefix } = serverTools[block.name];
  const asked = (field: string) => stringOf(objectOf(block.input)?.[field]) ?? "";
  const query = asked("query");
  return {
    id: context.newId(itemPrefix),
    type: item,
    action:
      block.name === "web_fetch"
        ? { type: "open_page", url: asked("url") }
        : { type: "search", query, queries: [query] },
  };
}

export const startedCallItem = ({ id, type, action }: ServerCall): JsonObject => ({
  id,
  type,
  status: "in_progress",
  action,
});

/** Makes the finished item; without a result the call was never run. */
export function finishedCallItem({ id, type, action }: ServerCall, result: ToolResult | null): JsonObject {
  const found = sourcesOf(result);
  return {
    id,
    type,
    status: found === null ? "failed" : "completed",
    action: action["type"] === "search" ? { ...action, sources: found ?? [] } : action,
  };
}

/** Null for a result that is an error. */
function sourcesOf(result: ToolResult | null): JsonObject[] | null {
  if (result === null) return null;
  if (result.type === "web_fetch_tool_result") return result.content.type === "web_fetch_result" ? [] : null;
  return Array.isArray(result.content) ? result.content.map(({ url }) => ({ type: "url", url })) : null;
}
