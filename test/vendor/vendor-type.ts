/** Which of the vendors' types is judged of what. */
import type { Dialect } from "../../dataplane/dialects/dialect.ts";

/** The names in types.ts. */
export const vendorTypes = [
  "MessagesAnswer",
  "MessagesEvent",
  "MessagesRequest",
  "MessagesModel",
  "MessagesError",
  "OpenaiError",
  "OpenaiModel",
  "ChatAnswer",
  "ChatEvent",
  "ChatRequest",
  "ResponsesAnswer",
  "ResponsesEvent",
  "ResponsesRequest",
] as const;
export type VendorType = (typeof vendorTypes)[number];

const kinds = { messages: "Messages", chat: "Chat", responses: "Responses" } as const satisfies Record<
  Dialect,
  string
>;

/** The vendor's type of a dialect's whole answer, of one event of its stream, of its request. */
export const vendorType = (dialect: Dialect, what: "Answer" | "Event" | "Request"): VendorType =>
  `${kinds[dialect]}${what}`;
