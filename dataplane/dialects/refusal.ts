/** Refusals: OpenAI says them in words of their own, Messages in a stop reason (dialects.md §D3, rule 2.15). */
import type { MessageEnd, MessagesResponse, StopReason } from "./messages/types.ts";

/** How another dialect's answer ended: it names no stop sequence, and tells a refusal in plain words. */
export const foreignEnd = (stop: StopReason): MessageEnd => ({
  stop_reason: stop,
  stop_sequence: null,
  ...(stop === "refusal" && { stop_details: { type: "refusal", category: null, explanation: null } }),
});

/** What a refusal says: the model's own text, else the provider's explanation. */
export const refusalText = (text: string, from: Pick<MessagesResponse, "stop_details">): string =>
  text === "" ? (from.stop_details?.explanation ?? "") : text;
