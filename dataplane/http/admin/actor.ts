/** Who asks for a change through the admin API, as the audit log records it. */
import type { FastifyRequest } from "fastify";
import type { Actor } from "../../identity/audit-log.ts";
import { callerOf } from "../route.ts";

const MAX_FORWARDED = 500;

export function actorOf(request: FastifyRequest): Actor {
  const { organizationId, keyId } = callerOf(request);
  const forwarded = request.headers["x-forwarded-for"];
  return {
    organizationId,
    keyId,
    requestId: request.id,
    address: request.ip,
    forwardedFor: typeof forwarded === "string" ? forwarded.slice(0, MAX_FORWARDED) : null,
  };
}
