/** Refusals: OpenAI has a text for them, Messages a stop reason (dialects.md §D3, rule 2.15). */
import type { MessageEnd, MessagesResponse, StopReason } from "./messages/types.ts";

/** Makes the Messages end of another dialect's answer, which has no stop sequence and no details of a refusal. */
export const foreignEnd = (stop: StopReason): MessageEnd => ({
  stop_reason: stop,
  stop_sequence: null,
  ...(stop === "refusal" && { stop_details: { type: "refusal", category: null, explanation: null } }),
});

/** Returns the text of a refusal: the model's own, else the provider's explanation. */
export const refusalText = (text: string, from: Pick<MessagesResponse, "stop_details">): string =>
  text === "" ? (from.stop_details?.explanation ?? "") : text;
