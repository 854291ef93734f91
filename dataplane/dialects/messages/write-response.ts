/** Writes a whole answer for a Messages client (dialects.md §C1, service.md "Message"). */
import type { Carry, CodecContext } from "../codecs.ts";
import { exactInput } from "../exact-inputs.ts";
import { objectOf } from "../fields.ts";
import { compactionFields, sealBlob, sealSignature } from "../reasoning.ts";
import { clientTool } from "../tool-name.ts";
import { writeMessagesUsage } from "../write-usage.ts";
import type { ContentBlock, JsonObject, MessagesResponse } from "./types.ts";

export function writeMessagesResponse(
  response: MessagesResponse,
  carry: Carry,
  context: CodecContext,
): JsonObject {
  return {
    id: response.id,
    type: "message",
    role: "assistant",
    model: context.model,
    content: response.content.map((block) => writeBlock(block, carry, context) as unknown as JsonObject),
    stop_reason: response.stop_reason,
    stop_sequence: response.stop_sequence,
    stop_details: response.stop_details ?? null,
    container: null,
    diagnostics: null,
    usage: writeMessagesUsage(response.usage),
  };
}

/** Writes a block for the client, with all fields of the official type: its own tool names, reasoning sealed. */
export function writeBlock(block: ContentBlock, carry: Carry, context: CodecContext): ContentBlock {
  if (block.type === "text") return { ...block, citations: block.citations ?? [] };
  if (block.type === "tool_use")
    return {
      ...block,
      name: clientTool(block.name, carry).name,
      input: exactInput(block.input),
      caller: block.caller ?? { type: "direct" },
    };
  if (block.type === "thinking")
    return {
      ...block,
      thinking: hidesThinking(carry) ? "" : block.thinking,
      signature: sealSignature(block.signature, context.sealer),
    };
  if (block.type === "redacted_thinking")
    return { ...block, data: sealSignature(block.data, context.sealer, "data") };
  // Unknown kinds pass as they are; only a compaction's encrypted fields are sealed.
  if ((block.type as string) === "compaction") return sealCompaction(block, context);
  return block;
}

/** Whether the client wants no text of thinking, from any upstream; the signature stays (dialects.md §D2). */
export const hidesThinking = (carry: Carry): boolean =>
  objectOf(carry.request["thinking"])?.["display"] === "omitted";

/** Seals a `compaction` block, or its delta. */
export function sealCompaction<Holder extends object>(holder: Holder, { sealer }: CodecContext): Holder {
  const sealed: Record<string, unknown> = { ...(holder as object) };
  for (const [key, field] of compactionFields) {
    const blob = sealed[key];
    if (typeof blob === "string" && blob !== "")
      sealed[key] = sealBlob({ dialect: "messages", field, id: "" }, blob, sealer);
  }
  return sealed as Holder;
}
