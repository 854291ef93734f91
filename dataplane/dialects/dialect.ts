/** One of the three wire forms that clients and upstreams speak. */
export type Dialect = "messages" | "chat" | "responses";

export const dialects = ["messages", "chat", "responses"] as const satisfies readonly Dialect[];

/** Where each dialect is served; also the path appended to an upstream's base URL. */
export const dialectPath: Record<Dialect, string> = {
  messages: "/v1/messages",
  chat: "/v1/chat/completions",
  responses: "/v1/responses",
};
