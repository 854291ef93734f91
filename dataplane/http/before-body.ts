/** Checks of a request once its key is known, before a byte of its body is read (rule 7.1). */
import type { FastifyContextConfig } from "fastify";
import type { IncomingMessage } from "node:http";
import type { Preflight } from "../billing/holds/preflight.ts";
import type { Principal } from "../identity/principal.ts";
import { encodingOf } from "./body-stream.ts";
import { limits } from "./limits.ts";
import { announcedLength } from "./request-body.ts";

/** undefined: the request may go on at once. @throws ApiError 401, 402, 429, 503 */
export function beforeBody(
  request: IncomingMessage,
  { dialect, needsCredit, countsText }: FastifyContextConfig,
  principal: Principal,
  preflight: Preflight,
): Promise<void> | undefined {
  if (dialect !== undefined) return preflight.inference(principal, dialect, isLarge(request));
  if (countsText === true) return preflight.counting(principal, leastText(request));
  const free = preflight.free(principal);
  return needsCredit === true ? free.then(() => preflight.credit(principal)) : free;
}

/** Whether reading the body costs, or may cost, more than asking Redis about the limits. */
function isLarge(request: IncomingMessage): boolean {
  if (encodingOf(request) !== null) return true;
  const length = announcedLength(request);
  return length > limits.shortBodyBytes || (length === 0 && "transfer-encoding" in request.headers);
}

/** Least bytes of text in the body, by its announced length. */
const leastText = (request: IncomingMessage): number =>
  encodingOf(request) === null ? Math.max(1, announcedLength(request)) : 1;
