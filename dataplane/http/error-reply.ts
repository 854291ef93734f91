/** Where an error becomes the answer to a request, in the form of its path's dialect (dialects/errors.ts). What is none: bare-socket.ts. */
import type { FastifyError, FastifyReply, FastifyRequest } from "fastify";
import type { Logger } from "pino";
import { errorBody, errorHeaders, errorStatus } from "../dialects/errors.ts";
import { ApiError } from "../lib/api-error.ts";
import { apiErrorOf } from "../store/store-away.ts";
import { ClientGone } from "./body-errors.ts";
import { isUninvited } from "./continue.ts";
import { errorStyle, pathOf, versionOf, withoutKeys } from "./error-style.ts";
import { announceKeyless } from "./keyless-connections.ts";
import { dropRest } from "./linger.ts";
import { ownHeaders } from "./own-headers.ts";

/** Headers about an answer's contents; an error in its place has none of them. */
const HEADERS_OF_CONTENTS = ["accept-ranges", "content-disposition", "content-range"];

/** Answers a request with an error; a client that has gone gets none. */
export function sendError(error: unknown, request: FastifyRequest, reply: FastifyReply, log: Logger): void {
  if (error instanceof ClientGone) {
    reply.hijack();
    reply.raw.destroy();
    return;
  }
  const apiError = toApiError(error);
  if (apiError.code === "internal") log.error({ request_id: request.id, err: error }, "request failed");
  else if (apiError !== error && apiError.code === "unavailable")
    log.warn({ request_id: request.id, err: error }, "a store could not be asked");
  request.summary.errorCode = apiError.code;
  announceKeyless(reply.raw);
  const style = errorStyle(pathOf(request.url), versionOf(request));
  const status = errorStatus(style.family, apiError);
  // No wait for the rest of a body that is too slow, nor for one that was not invited by `100 Continue`.
  if (status === 408 || isUninvited(request.raw)) reply.header("connection", "close");
  else dropRest(request.raw);
  for (const name of HEADERS_OF_CONTENTS) reply.removeHeader(name);
  reply
    .code(status)
    .headers({ ...ownHeaders(request, performance.now()), ...errorHeaders(apiError) })
    .type("application/json")
    .send(withoutKeys(JSON.stringify(errorBody(style, apiError, request.id))));
}

/** Turns everything that can be thrown at the server into one of the errors of the table. */
function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const { statusCode, code } = error as Partial<FastifyError>;
  if (code === "FST_ERR_CTP_INVALID_MEDIA_TYPE") {
    return new ApiError("unsupported_media_type", "The request's content type is not supported.");
  }
  if (statusCode === 413) return new ApiError("too_large", "The request is too large.");
  if (typeof statusCode === "number" && statusCode >= 400 && statusCode < 500) {
    return new ApiError("invalid_request", "The request is malformed.", { cause: error });
  }
  return apiErrorOf(error);
}
