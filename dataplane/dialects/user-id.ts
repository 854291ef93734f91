import { createHash } from "node:crypto";
import type { MessagesRequest } from "./messages/types.ts";

/** What OpenAI takes at most; Claude Code sends 150 characters (dialects.md §D1). */
const LENGTH_MAX = 64;

/** The end user's id, hashed when it is too long for the other dialects: the same user stays the same. */
export function userId(request: MessagesRequest): string | undefined {
  const id = request.metadata?.user_id ?? undefined;
  if (id === undefined || id.length <= LENGTH_MAX) return id;
  return createHash("sha256").update(id, "utf8").digest("hex");
}
