/**
 * The HTTP side: one Fastify server, one hook that every request passes, one place where errors are written.
 * What a resource does stands in `routes/`; this file knows none of them.
 */
import Fastify, {
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
} from "fastify";
import { STATUS_CODES, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Logger } from "pino";
import type { Directory, Principal } from "../billing/principal.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { errorBody, errorHeaders, errorStatus } from "../dialects/errors.ts";
import { ApiError } from "../lib/api-error.ts";
import type { Clock } from "../lib/clock.ts";
import type { NewId } from "../lib/ids.ts";
import { logRequest } from "../telemetry/log.ts";
import { countRequest, metrics } from "../telemetry/metrics.ts";
import { newRequestRecord, type RequestRecord } from "../telemetry/request-record.ts";
import { endSpan, startRequestSpan } from "../telemetry/trace.ts";
import { absence } from "./absent.ts";
import { authenticate, type KeyKind } from "./auth.ts";
import { errorStyle, pathOf, withLiteralPercents, withoutKeys } from "./error-style.ts";
import { letRestFlow } from "./linger.ts";
import { limits } from "./limits.ts";
import { ClientGone } from "./request-body.ts";
import { StalledClients } from "./stalled-clients.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /** Which kind of key a route needs; every route must say. `none`: open to everybody. */
    access?: KeyKind | "none";
    /** Set on inference routes: the label of their metrics. */
    dialect?: Dialect;
  }
  interface FastifyRequest {
    /** Of the route; Fastify puts its options together anew for whoever asks. */
    dialect: Dialect | undefined;
    /** Set by the server's hook; read it through `callerOf`. */
    caller: Principal | null;
    record: RequestRecord;
    /** `performance.now()` at which the request's headers had come, and at which its answer began. */
    startedAt: number;
    firstByteAt: number | null;
    /** Unix milliseconds. */
    acceptedAt: number;
  }
}

/** What every route may use. A route's own needs are arguments of the function that makes it. */
export interface HttpServices {
  readonly log: Logger;
  readonly clock: Clock;
  readonly newId: NewId;
  readonly directory: Directory;
  /** The snapshot to serve a new request from. @throws ApiError 503 before the first one was loaded. */
  snapshot(): Snapshot;
  /** Refuses new work when the process is overloaded. @throws ApiError 503 */
  shed?(): void;
}

/** Adds one resource's routes. */
export type Routes = (app: FastifyInstance, services: HttpServices) => void;

/** A free endpoint costs no hold whose script would notice a revoked key, so it looks closer (design.md §4.1). */
const FREE_KEY_AGE_MS = 900;
const BILLED_KEY_AGE_MS = 30_000;

/** Who is calling; only on routes that need a key. */
export function callerOf(request: FastifyRequest): Principal {
  if (request.caller === null) throw new Error(`${request.routeOptions.url} asks for a caller without a key`);
  return request.caller;
}

export interface ServedRoute {
  readonly method: string;
  /** With parameters as `:name` and `*`. */
  readonly url: string;
  readonly access: KeyKind | "none";
}

export interface HttpServer {
  readonly app: FastifyInstance;
  /** Every open connection. */
  readonly connections: ReadonlySet<Socket>;
  /** Every route that is served, in the order of registration. */
  readonly routes: readonly ServedRoute[];
  /** From now on every answer closes its connection, so that clients move to another process. */
  drain(): void;
}

export function createServer(services: HttpServices, routes: readonly Routes[]): HttpServer {
  const { log } = services;
  let draining = false;
  const app = Fastify({
    logger: false,
    http: {
      maxHeaderSize: limits.headerBytes,
      headersTimeout: limits.headersTimeoutMs,
      connectionsCheckingInterval: limits.connectionsCheckMs,
      // Node would answer without a body and a request id; the hook below does it in our own form.
      requireHostHeader: false,
    },
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.keepAliveMs,
    forceCloseConnections: "idle",
    return503OnClosing: false,
    genReqId: () => services.newId("req"),
    // An id may be as long as a request's head: unknown ones are all answered alike.
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: limits.headerBytes },
    // A URL that cannot be routed: none of the hooks below run for it.
    frameworkErrors: (error, request, reply) => {
      // An id that is no text is as unknown as any other, to those who may ask (rule 5.7).
      if (error.code === "FST_ERR_BAD_URL") {
        request.raw.url = withLiteralPercents(request.url);
        app.routing(request.raw, reply.raw);
        return;
      }
      request.caller = null;
      request.firstByteAt = null;
      request.dialect = undefined;
      begin(request, reply, services);
      sendError(error, request, reply);
    },
    clientErrorHandler: (error, socket) => refuseConnection(error, socket, services),
  });
  app.server.maxHeadersCount = limits.headerCount;
  app.server.maxConnections = limits.connections;
  // Node would answer 417 by itself, without a body and a request id.
  app.server.on("checkExpectation", (request, response) => app.server.emit("request", request, response));
  const connections = new Set<Socket>();
  app.server.on("connection", (socket) => {
    connections.add(socket);
    socket.once("close", () => connections.delete(socket));
  });
  const stalled = new StalledClients(connections);
  // To the last connection: Fastify's own hook comes before they have ended.
  app.server.once("listening", () => app.server.once("close", stalled.start()));

  const sendError = (error: unknown, request: FastifyRequest, reply: FastifyReply): void => {
    if (error instanceof ClientGone) {
      reply.hijack();
      reply.raw.destroy();
      return;
    }
    const apiError = toApiError(error);
    if (apiError.code === "internal") log.error({ id: request.id, err: error }, "request failed");
    request.record.errorCode = apiError.code;
    const style = errorStyle(pathOf(request.url), versionOf(request));
    const status = errorStatus(style.family, apiError);
    // The rest of a body that is too slow is not waited for.
    if (status === 408) reply.header("connection", "close");
    void reply
      .code(status)
      .headers({ "request-id": request.id, "x-request-id": request.id, ...errorHeaders(apiError) })
      .type("application/json")
      .send(withoutKeys(JSON.stringify(errorBody(style, apiError, request.id))));
  };

  // Bodies are read where they are needed, after the key was looked at.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", (_request, _payload, done) => done(null));
  app.decorateRequest("caller", null);
  app.decorateRequest("dialect", undefined);
  app.decorateRequest("firstByteAt", null);
  app.decorateRequest("startedAt", 0);
  app.decorateRequest("acceptedAt", 0);
  // Set by the hook below before anything can read it; a shared default object would mix requests.
  app.decorateRequest("record", null as unknown as RequestRecord);

  // With `done`, as most callers are known at once: a promise for each request costs time.
  app.addHook("onRequest", (request, reply, done) => {
    const { access, dialect } = request.routeOptions.config ?? {};
    request.dialect = dialect;
    begin(request, reply, services);
    if (draining) reply.raw.setHeader("connection", "close");
    requireHost(request);
    refuseExpectation(request);
    refuseUpgrade(request, reply);
    if (access === undefined || access === "none") return done();
    if (dialect !== undefined) services.shed?.();
    const maxAgeMs = dialect === undefined ? FREE_KEY_AGE_MS : BILLED_KEY_AGE_MS;
    const caller = authenticate(request.headers, access, services.directory, maxAgeMs);
    const known = (principal: Principal) => {
      request.caller = principal;
      done();
    };
    if (caller instanceof Promise) caller.then(known, done);
    else known(caller);
  });
  app.setErrorHandler((error, request, reply) => sendError(error, request, reply));

  const known = new Map<string, Set<string>>();
  const served: ServedRoute[] = [];
  app.addHook("onRoute", (route) => {
    const access = route.config?.access;
    if (access === undefined) throw new Error(`${route.url} does not say which key it needs`);
    const methods = known.get(route.url) ?? new Set<string>();
    for (const method of [route.method].flat()) {
      methods.add(method);
      served.push({ method, url: route.url, access });
    }
    known.set(route.url, methods);
  });
  app.setNotFoundHandler((request, reply) => {
    const path = pathOf(request.url);
    const allowed = allowedMethods(known, path);
    if (allowed.length > 0) {
      reply.header("allow", allowed.join(", "));
      throw new ApiError(
        "method_not_allowed",
        `${request.method} is not allowed here; allowed: ${allowed.join(", ")}.`,
      );
    }
    throw new ApiError("not_found", absence(request.method, path));
  });
  for (const add of routes) add(app, services);
  return {
    app,
    connections,
    routes: served,
    drain: () => {
      draining = true;
    },
  };
}

/** What every request gets before anything else: its record, its ids, neutral header names, and a log line at its end. */
function begin(request: FastifyRequest, reply: FastifyReply, services: HttpServices): void {
  request.startedAt = performance.now();
  request.acceptedAt = services.clock.now();
  const { headers } = request.raw;
  const { "vendor-version": version, "vendor-beta": beta } = headers;
  if (version !== undefined) headers["anthropic-version"] ??= version;
  if (beta !== undefined) headers["anthropic-beta"] ??= beta;
  request.record = newRequestRecord(startRequestSpan("request", headers));
  // An inference answer brings its own: headers that were set before are written the slow way.
  if (request.dialect === undefined)
    reply.raw.setHeader("request-id", request.id).setHeader("x-request-id", request.id);
  reply.raw.on("close", () => finish(request, reply, services));
}

/** The line, the counts and the span of a request that is over, whether it was answered or the client left. */
function finish(request: FastifyRequest, reply: FastifyReply, services: HttpServices): void {
  const { record, caller, startedAt, firstByteAt } = request;
  if (!request.raw.complete) letRestFlow(request.raw);
  const status = reply.raw.writableFinished ? reply.raw.statusCode : 499;
  const whole = (performance.now() - startedAt) / 1000;
  countRequest({
    dialect: request.dialect ?? "other",
    model: record.model ?? "none",
    status,
    whole,
    firstByte: firstByteAt === null ? null : (firstByteAt - startedAt) / 1000,
    upstreamWait: record.upstreamWaitMs / 1000,
  });
  if (record.span !== null) {
    const of =
      record.model === null ? {} : { "gen_ai.request.model": record.model, "gapura.path": record.path ?? "" };
    endSpan(record.span, { "http.response.status_code": status, ...of }, record.errorCode);
  }
  // Members without a value are left out of the line.
  const line = {
    id: request.id,
    method: request.method,
    path: withoutKeys(pathOf(request.url)),
    status,
    ms: Math.round(whole * 1e4) / 10,
    org: caller?.organizationId,
    keyId: caller?.keyId,
    model: record.model ?? undefined,
    upstream: record.model === null ? undefined : record.upstream,
    way: record.model === null ? undefined : record.path,
    tries: record.tries > 1 ? record.tries : undefined,
    streamed: record.streamed || undefined,
    error: record.errorCode ?? undefined,
    client: clientId(request),
  };
  logRequest(services.log, status >= 500 ? "warn" : "info", line);
}

/** The caller's own id, for finding its request in the log; nothing else is done with it. */
function clientId(request: FastifyRequest): string | undefined {
  const id = request.headers["x-client-request-id"];
  return typeof id === "string" && /^[\x21-\x7e]{1,128}$/.test(id) ? id : undefined;
}

const versionOf = (request: FastifyRequest): string | undefined => {
  const version = request.headers["anthropic-version"] ?? request.headers["vendor-version"];
  return typeof version === "string" ? version : undefined;
};

/** RFC 9112 §3.2: a request of HTTP/1.1 without a Host is answered 400. */
function requireHost({ headers, raw }: FastifyRequest): void {
  if (headers.host === undefined && raw.httpVersion === "1.1")
    throw new ApiError("invalid_request", "The request has no Host header.");
}

/** RFC 9110 §10.1.1: an expectation that is not understood is answered 417. */
function refuseExpectation({ headers: { expect } }: FastifyRequest): void {
  if (expect !== undefined && expect.trim().toLowerCase() !== "100-continue")
    throw new ApiError("expectation_failed", "The only expectation that is understood is 100-continue.");
}

/**
 * There are no WebSockets here. Codex tries one first and falls back at once when it sees 426 (dialects.md §0.6).
 * `Upgrade: h2c`, which curl and Java send with ordinary requests, is ignored as RFC 9110 allows.
 */
function refuseUpgrade(request: FastifyRequest, reply: FastifyReply): void {
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

function allowedMethods(known: ReadonlyMap<string, ReadonlySet<string>>, path: string): string[] {
  const found = new Set<string>();
  const clean = path.length > 1 ? path.replace(/\/$/, "") : path;
  for (const [pattern, methods] of known) {
    const source = pattern
      .replace(/[.+?^${}()|[\]\\]/g, "\\$&")
      .replace(/:[A-Za-z_]+/g, "[^/]+")
      .replace("*", ".+");
    if (new RegExp(`^${source}$`).test(clean)) for (const method of methods) found.add(method);
  }
  return [...found].sort();
}

/** Everything that can be thrown at the server, as one of the errors of the table. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const { statusCode, code } = error as Partial<FastifyError>;
  if (code === "FST_ERR_CTP_INVALID_MEDIA_TYPE") {
    return new ApiError("unsupported_media_type", "The request's content type is not supported.");
  }
  if (statusCode === 413) return new ApiError("too_large", "The request is too large.");
  if (typeof statusCode === "number" && statusCode >= 400 && statusCode < 500) {
    return new ApiError("invalid_request", "The request is malformed.", { cause: error });
  }
  return new ApiError("internal", "An unexpected error occurred; the request id helps to find it.", {
    cause: error,
  });
}

/** Answers what is not HTTP, or comes too slowly, on the bare socket. */
function refuseConnection(error: NodeJS.ErrnoException, socket: Socket, services: HttpServices): void {
  // A request that is still coming in has no answer yet that a refusal could spoil.
  const answer = answerOn(socket);
  const spoils = answer !== null && (answer.headersSent || answer.req.complete);
  if (error.code === "ECONNRESET" || !socket.writable || spoils) {
    socket.destroy();
    return;
  }
  const [status, apiError] = connectionFault(error);
  const id = services.newId("req");
  const body = JSON.stringify(errorBody({ family: "openai", union: true }, apiError, id));
  services.log.info({ id, status, fault: error.code }, "refused a malformed request");
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
  // Whatever still comes is not read; a client that does not hang up is not waited for.
  socket.setTimeout(1000, () => socket.destroy());
}

/** True while a request of this connection is being served. */
export const answering = (socket: Socket): boolean => answerOn(socket) !== null;

/** The answer that stands next on this connection. */
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
  return [400, new ApiError("invalid_request", "The request is not valid HTTP/1.1.")];
}
