/** Detects streams of another dialect than their upstream is declared to speak. */
import type { Dialect } from "./dialect.ts";
import type { JsonObject } from "./messages/types.ts";

/**
 * Whether a stream whose first event this is speaks another dialect than its upstream is declared to: it is no answer
 * (rule 1.6).
 */
export const isForeignEvent = (dialect: Dialect, data: JsonObject): boolean =>
  (spokenIn(data) ?? dialect) !== dialect;

/** Returns the one dialect that has such an event; null when several have it, or none. */
function spokenIn({ type, object }: JsonObject): Dialect | null {
  if (object === "chat.completion.chunk") return "chat";
  if (type === "message_start") return "messages";
  return typeof type === "string" && type.startsWith("response.") ? "responses" : null;
}
