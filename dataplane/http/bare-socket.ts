/** Connections below their requests: refusals on the bare socket, and whether a request is being answered. */
import { STATUS_CODES, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { errorBody, errorHeaders } from "../dialects/errors.ts";
import { ApiError } from "../lib/api-error.ts";
import { metrics } from "../telemetry/metrics.ts";
import { limits } from "./limits.ts";
import { slowReads } from "./read-turns.ts";
import type { HttpServices } from "./route.ts";

const CONNECT_ASKED = "CONNECT_ASKED";

/**
 * Refuses a client that takes this server for a proxy: Node gives no answer to such a request, and would say nothing. Node has
 * stopped listening to the connection: an error of it would end the process, and an answer under way would not go on once the
 * client is slow.
 */
export function refuseConnect(socket: Socket, services: HttpServices): void {
  socket.on("error", () => socket.destroy());
  if (answering(socket)) socket.destroy();
  else refuseConnection(Object.assign(new Error("CONNECT"), { code: CONNECT_ASKED }), socket, services);
}

/** Answers what is not HTTP, or comes too slowly, on the bare socket. */
export function refuseConnection(error: NodeJS.ErrnoException, socket: Socket, services: HttpServices): void {
  const answer = answerOn(socket);
  const isHere = error.code !== "ECONNRESET" && socket.writable;
  if (isHere && answer?.req.complete === true) {
    endBehind(socket, answer);
    return;
  }
  // A request that is still coming in may have an answer already, which a refusal would spoil.
  if (!isHere || answer?.headersSent === true) {
    socket.destroy();
    return;
  }
  const [status, apiError] = connectionFault(error);
  const id = services.newId("req");
  const body = JSON.stringify(errorBody({ family: "openai", union: true }, apiError, id));
  services.log.info({ request_id: id, status, fault: error.code }, "refused a malformed request");
  metrics.requests.inc({ dialect: "other", model: "none", status: String(status) });
  socket.end(
    [
      `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}`,
      "content-type: application/json",
      `content-length: ${Buffer.byteLength(body)}`,
      `request-id: ${id}`,
      `x-request-id: ${id}`,
      ...Object.entries(errorHeaders(apiError)).map(([name, value]) => `${name}: ${value}`),
      "connection: close",
      "",
      body,
    ].join("\r\n"),
  );
  // Nothing more is read; a client that does not hang up is cut after a second.
  socket.setTimeout(1000, () => socket.destroy());
}

/**
 * Ends the connection after the answer to a request that arrived whole, when the bytes behind it are not HTTP, such as the rest
 * of a body that is longer than its content-length. They are dropped, but slowly.
 */
function endBehind(socket: Socket, answer: ServerResponse): void {
  slowReads.wait(socket);
  if (ending.has(socket)) return;
  ending.add(socket);
  if (!closeWithAnswer(socket)) answer.once("close", () => socket.destroySoon());
}

/** Connections on which no more requests are read. */
const ending = new WeakSet<Socket>();

/** Makes the answer under way the last one of its connection. @returns false: no answer is under way, or its headers are out. */
export function closeWithAnswer(socket: Socket): boolean {
  const answer = answerOn(socket);
  if (answer === null || answer.headersSent) return false;
  answer.setHeader("connection", "close");
  return true;
}

/** True while a request of this connection is being served. */
export const answering = (socket: Socket): boolean => answerOn(socket) !== null;

/** Whether this answer is the connection's next one; others wait for it. */
export const isAnswering = (socket: Socket, answer: ServerResponse): boolean => answerOn(socket) === answer;

/** The answer that is next on this connection. */
function answerOn(socket: Socket): ServerResponse | null {
  return (Reflect.get(socket, "_httpMessage") as ServerResponse | null | undefined) ?? null;
}

function connectionFault(error: NodeJS.ErrnoException): [number, ApiError] {
  if (error.code === "HPE_HEADER_OVERFLOW") {
    return [
      431,
      new ApiError(
        "invalid_request",
        `The request's headers are larger than ${limits.headerBytes} bytes, or more than ${limits.headerCount}.`,
      ),
    ];
  }
  if (error.code === "ERR_HTTP_REQUEST_TIMEOUT") {
    return [408, new ApiError("request_timeout", "The request did not arrive in time.")];
  }
  const message =
    error.code === CONNECT_ASKED
      ? "This is no proxy: CONNECT is not served."
      : "The request is not valid HTTP/1.1.";
  return [400, new ApiError("invalid_request", message)];
}
