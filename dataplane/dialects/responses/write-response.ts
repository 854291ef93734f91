/** Writes a whole answer for a Responses client (dialects.md §C3, §D2–§D4, §E; service.md "Response"). */
import type { Annotate, Carry, CodecContext } from "../codecs.ts";
import { writeArguments } from "../arguments.ts";
import { answeredBlocks, refusalText } from "../refusal.ts";
import {
  annotationsOf,
  callStatus,
  finishedCallItem,
  finishedItem,
  functionCallItem,
  messageItem,
  reasoningItem,
  serverCall,
  textPart,
} from "./output-items.ts";
import type { ToolResult } from "./output-items.ts";
import { compactionOutput } from "./compaction.ts";
import { endedResponse, isComplete, responseHead } from "./response-frame.ts";
import type { JsonObject, MessagesResponse, TextBlock, ToolUseBlock } from "../messages/types.ts";

export function writeResponsesResponse(
  response: MessagesResponse,
  carry: Carry,
  context: CodecContext,
  annotate?: Annotate,
): JsonObject {
  const head = responseHead(context.newId("resp"), carry, context);
  const output = carry.compacts
    ? compactionOutput(
        response.content.flatMap((block) => (block.type === "text" ? [block.text] : [])),
        context,
      )
    : outputItems(response, carry, context, annotate).map((item) => finishedItem(item, carry, context));
  return endedResponse(head, response.stop_reason, output, response.usage, context);
}

function outputItems(
  response: MessagesResponse,
  carry: Carry,
  context: CodecContext,
  annotate: Annotate | undefined,
): JsonObject[] {
  const items: JsonObject[] = [];
  const refused = response.stop_reason === "refusal";
  let parts: JsonObject[] = [];
  const answered = refused ? answeredBlocks(response.content) : response.content.length;
  let saidRefusal = false;
  const closeMessage = (status: "completed" | "incomplete") => {
    if (parts.length > 0) items.push(messageItem(context.newId("msg"), status, parts));
    parts = [];
  };
  const results = resultsById(response);
  const addText = ({ text, logprobs, annotations }: TextBlock) =>
    parts.push(textPart(text, annotationsOf(text, annotate, annotations), logprobs));
  const addRefusal = (refusal: string) => {
    if (refusal === "") return;
    saidRefusal = true;
    parts.push({ type: "refusal", refusal });
  };
  for (const [index, block] of response.content.entries()) {
    if (block.type === "text") {
      if (index >= answered) addRefusal(block.text);
      else if (block.text !== "") addText(block);
      continue;
    }
    closeMessage("completed");
    switch (block.type) {
      case "thinking":
      case "redacted_thinking":
        items.push(reasoningItem(context.newId("rs"), block, carry, context));
        break;
      case "tool_use":
        items.push(finishedFunctionCall(block, carry, context));
        break;
      case "server_tool_use": {
        const call = serverCall(block, context);
        if (call !== null) items.push(finishedCallItem(call, results.get(block.id) ?? null));
        break;
      }
      default:
    }
  }
  if (refused && !saidRefusal) addRefusal(refusalText("", response));
  closeMessage(isComplete(response.stop_reason) ? "completed" : "incomplete");
  return items;
}

function finishedFunctionCall(block: ToolUseBlock, carry: Carry, context: CodecContext): JsonObject {
  const args = writeArguments(block.input);
  return functionCallItem(context.newId("fc"), block, args, callStatus(args), carry);
}

function resultsById(response: MessagesResponse): Map<string, ToolResult> {
  const results = new Map<string, ToolResult>();
  for (const block of response.content)
    if (block.type === "web_search_tool_result" || block.type === "web_fetch_tool_result")
      results.set(block.tool_use_id, block);
  return results;
}
