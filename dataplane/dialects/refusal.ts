/** Refusals: OpenAI has a text for them, Messages a stop reason (dialects.md §D3, rule 2.15). */
import { serverToolBlocks } from "./find-server-tool.ts";
import type { ContentBlock, MessageEnd, MessagesResponse, StopReason } from "./messages/types.ts";

/** Makes the Messages end of another dialect's answer, which has no stop sequence and no details of a refusal. */
export const foreignEnd = (stop: StopReason): MessageEnd => ({
  stop_reason: stop,
  stop_sequence: null,
  ...(stop === "refusal" && { stop_details: { type: "refusal", category: null, explanation: null } }),
});

/** Returns the text of a refusal: the model's own, else the provider's explanation. */
export const refusalText = (text: string, from: Pick<MessagesResponse, "stop_details">): string =>
  text === "" ? (from.stop_details?.explanation ?? "") : text;

/**
 * Returns how many blocks of a refused answer stand before what is refused: the last iteration of a tool loop. What earlier
 * ones said was an answer.
 */
export const answeredBlocks = (content: readonly ContentBlock[]): number =>
  content.findLastIndex(({ type }) => serverToolBlocks.has(type)) + 1;
