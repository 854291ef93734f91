import type { FastifyRequest } from "fastify";

/** The version of OpenAI's API that its answers name; there is no other. */
const OPENAI_VERSION = "2020-10-01";

/**
 * What every answer says of itself: its request's id, and in OpenAI's two dialects what their own say beside it
 * (dialects.md §A3). @param now `performance.now()` at which the answer begins
 */
export function ownHeaders(
  { id, dialect, startedAt }: Pick<FastifyRequest, "id" | "dialect" | "startedAt">,
  now: number,
): Record<string, string> {
  const headers: Record<string, string> = { "request-id": id, "x-request-id": id };
  if (dialect === "chat" || dialect === "responses") {
    headers["openai-processing-ms"] = String(Math.round(now - startedAt));
    headers["openai-version"] = OPENAI_VERSION;
  }
  return headers;
}
