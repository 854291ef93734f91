/** Checks that HTTP itself demands of a request, whatever it is for. */
import type { FastifyReply, FastifyRequest } from "fastify";
import { ApiError } from "../lib/api-error.ts";
import { pathOf } from "./error-style.ts";

/** RFC 9112 §3.2: a request of HTTP/1.1 without a Host is answered 400, and so is any with more than one. */
export function requireHost({ headers, raw }: FastifyRequest): void {
  if (headers.host === undefined) {
    if (raw.httpVersion === "1.1") throw new ApiError("invalid_request", "The request has no Host header.");
  } else if (hostsOf(raw.rawHeaders) > 1)
    throw new ApiError("invalid_request", "The request has more than one Host header.");
}

/** @param raw names and values in turn, as they came; the parsed headers have only the first Host */
function hostsOf(raw: readonly string[]): number {
  let hosts = 0;
  for (let at = 0; at < raw.length; at += 2)
    if (raw[at]?.length === 4 && raw[at]?.toLowerCase() === "host") hosts += 1;
  return hosts;
}

/** RFC 9110 §10.1.1: an expectation that is not understood is answered 417. */
export function refuseExpectation({ headers: { expect } }: FastifyRequest): void {
  if (expect !== undefined && expect.trim().toLowerCase() !== "100-continue")
    throw new ApiError("expectation_failed", "The only expectation that is understood is 100-continue.");
}

/**
 * There are no WebSockets here. Codex tries one first and falls back at once when it sees 426 (dialects.md §0.6).
 * `Upgrade: h2c`, which curl and Java send with ordinary requests, is ignored as RFC 9110 allows.
 */
export function refuseUpgrade(request: FastifyRequest, reply: FastifyReply): void {
  const upgrade = request.headers.upgrade;
  if (upgrade === undefined) return;
  const wantsSocket = /\bwebsocket\b/i.test(upgrade);
  if (!wantsSocket && !(request.method === "GET" && pathOf(request.url) === "/v1/responses")) return;
  reply.header("upgrade", "HTTP/1.1").header("connection", "upgrade");
  throw new ApiError(
    "upgrade_required",
    "This service speaks plain HTTP/1.1 here: send a POST request instead.",
  );
}
