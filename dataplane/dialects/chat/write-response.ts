/** Writes a whole answer for a Chat client (dialects.md §C2, §D2–§D4, service.md "Chat completion"). */
import { codePoints } from "../../lib/code-points.ts";
import type { Annotate, Carry, CodecContext } from "../codecs.ts";
import { writeArguments } from "../arguments.ts";
import { serverToolBlocks } from "../find-server-tool.ts";
import { answeredBlocks, refusalText } from "../refusal.ts";
import { clientTool } from "../tool-name.ts";
import { movedBy } from "../url-citations.ts";
import { openaiTier, writeChatUsage } from "../write-usage.ts";
import { TextJoiner } from "./text-joiner.ts";
import type {
  ContentBlock,
  JsonObject,
  MessagesResponse,
  StopReason,
  ToolUseBlock,
  UrlCitation,
} from "../messages/types.ts";

/** Separator of two pieces of reasoning. */
export const REASONING_BREAK = "\n\n";

export function writeChatResponse(
  response: MessagesResponse,
  carry: Carry,
  context: CodecContext,
  annotate?: Annotate,
): JsonObject {
  const refused = response.stop_reason === "refusal";
  const answered = refused ? answeredBlocks(response.content) : response.content.length;
  const said = response.content.slice(0, answered);
  const text = joinedText(said, carry);
  // With the tool before it, behind which blanks alone are nothing.
  const behindTool = response.content.slice(Math.max(0, answered - 1));
  const reasoning = response.content
    .flatMap((block) => (block.type === "thinking" && block.thinking !== "" ? [block.thinking] : []))
    .join(REASONING_BREAK);
  const calls = response.content.filter((block) => block.type === "tool_use");
  return {
    id: completionId(context),
    object: "chat.completion",
    created: context.createdAt,
    model: context.model,
    choices: [
      {
        index: 0,
        message: {
          role: "assistant",
          content: text === "" && (refused || calls.length > 0) ? null : text,
          refusal: refused ? refusalText(joinedText(behindTool, carry), response) : null,
          annotations: nested(annotate?.(text) ?? ownCitations(said)),
          ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
          ...writeCalls(calls, carry),
        },
        logprobs: writeLogprobs(response, refused),
        finish_reason: finishReason(response.stop_reason, carry),
      },
    ],
    usage: writeChatUsage(response.usage),
    service_tier: openaiTier(response.usage, "chat"),
  };
}

/** Makes a `chatcmpl-…` id, the only one whose prefix ends in a dash. */
export const completionId = (context: CodecContext): string =>
  context.newId("chatcmpl").replace("chatcmpl_", "chatcmpl-");

function writeLogprobs({ content }: MessagesResponse, refused: boolean): JsonObject | null {
  const logprobs = content.flatMap((block) => (block.type === "text" ? (block.logprobs ?? []) : []));
  if (logprobs.length === 0) return null;
  return refused ? { content: null, refusal: logprobs } : { content: logprobs, refusal: null };
}

/** What a provider's own tools did parts no texts, as in a stream. */
function joinedText(content: readonly ContentBlock[], { serverTools }: Carry): string {
  if (!serverTools) return content.map((block) => (block.type === "text" ? block.text : "")).join("");
  const joiner = new TextJoiner();
  let text = "";
  for (const block of content) {
    if (block.type === "text") text += joiner.push(block.text);
    else if (isServerTool(block.type)) joiner.toolRan();
  }
  return text + joiner.end();
}

/** Whether a Chat client never sees the block, which ends an iteration. */
export const isServerTool = (type: string): boolean => serverToolBlocks.has(type);

/** Nests citations as Chat does; their indexes count in the joined text. */
export const nested = (citations: readonly UrlCitation[]): JsonObject[] =>
  citations.map(({ start_index, end_index, url, title }) => ({
    type: "url_citation",
    url_citation: { start_index, end_index, url, title },
  }));

/** The upstream's own citations, read only where no server tool parts the texts. */
function ownCitations(content: readonly ContentBlock[]): UrlCitation[] {
  let points = 0;
  return content.flatMap((block) => {
    if (block.type !== "text") return [];
    const before = points;
    points += codePoints(block.text);
    return movedBy(block.annotations ?? [], before);
  });
}

function writeCalls(calls: readonly ToolUseBlock[], carry: Carry): JsonObject {
  const written = calls.map((call) => ({
    id: call.id,
    type: "function",
    function: { name: clientTool(call.name, carry).name, arguments: writeArguments(call.input) },
  }));
  const [first] = written;
  if (first === undefined) return {};
  return usesFunctions(carry) ? { function_call: first.function } : { tool_calls: written };
}

/**
 * Whether the client uses the older `functions`, whose answers hold one `function_call`; the upstream was asked for one
 * call at a time (`disable_parallel_tool_use`).
 */
export const usesFunctions = (carry: Carry): boolean =>
  Array.isArray(carry.request["functions"]) && !Array.isArray(carry.request["tools"]);

/** Maps a stop reason to `finish_reason` (dialects.md §D3). */
export function finishReason(reason: StopReason | null, carry: Carry): string {
  switch (reason) {
    case "max_tokens":
    case "model_context_window_exceeded":
    case "pause_turn":
      return "length";
    case "tool_use":
      return usesFunctions(carry) ? "function_call" : "tool_calls";
    case "refusal":
      return "content_filter";
    default:
      return "stop";
  }
}
