import { createHash } from "node:crypto";
import type { Cursor } from "./cursor.ts";
import type { MessagesRequest } from "./messages/types.ts";

/** Most characters of an end user's id at OpenAI; Claude Code sends 150 (dialects.md §D1). */
const LENGTH_MAX = 64;

/** The end user whom a Chat or Responses client names. @throws ApiError naming a field that is no text. */
export function readUser(root: Cursor): Pick<MessagesRequest, "metadata"> {
  const user = root.text("user");
  const user_id = root.text("safety_identifier") ?? user;
  return user_id === undefined ? {} : { metadata: { user_id } };
}

/** The end user's id, hashed when it is too long for the other dialects: the same user stays the same. */
export function userId(request: MessagesRequest): string | undefined {
  const id = request.metadata?.user_id ?? undefined;
  if (id === undefined || id.length <= LENGTH_MAX) return id;
  return createHash("sha256").update(id, "utf8").digest("hex");
}
