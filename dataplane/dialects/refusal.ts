/** Refusals: OpenAI says them in words of their own, Messages in a stop reason (dialects.md §D3, rule 2.15). */
import type { MessagesResponse } from "./messages/types.ts";

/** `stop_details` of a refusal that another dialect's model said in plain words. */
export const refusalDetails = { type: "refusal", category: null, explanation: null } as const;

/** What a refusal says: the model's own text, else the provider's explanation. */
export const refusalText = (text: string, from: Pick<MessagesResponse, "stop_details">): string =>
  text === "" ? (from.stop_details?.explanation ?? "") : text;
