import type { Route } from "../../config/schema.ts";
import { hash } from "../../upstream/affinity.ts";
import type { Inspection, AnyInspection } from "../inspect/body.ts";

/** Returns the key by which a request's upstreams are ranked; null: by chance. */
export function conversationOf(
  { affinity, upstreams }: Route,
  inspection: AnyInspection,
  organizationId: string,
  sessionId: string | undefined,
): string | null {
  if (affinity === "none" || upstreams.length === 1) return null;
  return conversationKey(inspection, organizationId, sessionId);
}

/** Most bytes that are hashed of a text: its beginning tells conversations apart, and does not change from turn to turn. */
const MAX_HASHED_BYTES = 4 * 1024;

/**
 * Makes the key that keeps a conversation on the upstream that has its prompt cached (design.md §4.6): the organization
 * and the prompt cache key, else the session's or user's id, else the instructions and the first user message.
 */
export function conversationKey(
  inspection: AnyInspection,
  organizationId: string,
  sessionId: string | undefined,
): string {
  const named = inspection.cacheKey ?? sessionId ?? inspection.userKey;
  return `${organizationId}\n${named ?? (inspection.remote === null ? beginning(inspection) : inspection.remote.beginning)}`;
}

/** Hashes the beginning of a conversation that nothing names. */
export function beginning({ body, fields, content }: Inspection): string {
  const text = (start: number, end: number) =>
    body.toString("latin1", start, Math.min(end, start + MAX_HASHED_BYTES));
  const parts = ["system", "instructions", "messages", "input"].map((name) => {
    const member = fields.get(name);
    if (member === undefined) return "";
    // What follows the first user message grows with every turn.
    return text(member.start, Math.min(member.end, content.firstUser?.end ?? member.end));
  });
  const first = content.firstUser;
  if (first !== null) parts.push(`${text(first.start, first.end)} ${first.end - first.start}`);
  return String(hash(parts.join("\n")));
}
