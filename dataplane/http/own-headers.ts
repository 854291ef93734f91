import type { FastifyRequest } from "fastify";

/** The version of OpenAI's API that its answers name; there is no other. */
const OPENAI_VERSION = "2020-10-01";

/**
 * Headers of every answer: its request's id, and in OpenAI's two dialects the further ones that OpenAI's own answers have
 * (dialects.md §A3).
 * @param now `performance.now()` at which the answer begins
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
