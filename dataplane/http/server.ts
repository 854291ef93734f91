/**
 * The HTTP side: one Fastify server, one hook that every request passes. The resources are in `routes/` and `admin/`; this file
 * knows none of them. How errors are written is in error-reply.ts.
 */
import Fastify, { type FastifyInstance, type FastifyReply, type RouteHandlerMethod } from "fastify";
import type { Server } from "node:http";
import type { Socket } from "node:net";
import type { Principal } from "../identity/principal.ts";
import type { ByteLease } from "../lib/byte-budget.ts";
import type { RequestSummary } from "../telemetry/request-summary.ts";
import { authenticate, callerOfUnserved, kindFault } from "./auth.ts";
import { closeWithAnswer, refuseConnect, refuseConnection } from "./bare-socket.ts";
import { beforeBody } from "./before-body.ts";
import { boundChunks } from "./chunked-bodies.ts";
import { ConnectionShares, tooManyConnections } from "./connection-shares.ts";
import { letBodiesWait } from "./continue.ts";
import { sendError } from "./error-reply.ts";
import { withLiteralPercents } from "./error-style.ts";
import { announceKeyless, KeylessConnections, showedKey } from "./keyless-connections.ts";
import { limits } from "./limits.ts";
import { boundPipelining } from "./pipelining.ts";
import { refuseExpectation, refuseUpgrade, requireHost } from "./protocol.ts";
import { begin } from "./request-life.ts";
import type { HttpServices, Routes, ServedRoute } from "./route.ts";
import { ServedPaths } from "./served-paths.ts";
import { StalledClients } from "./stalled-clients.ts";

/** How old a remembered key may be: less where no hold is made, whose script would notice a revoked key (design.md §4.1). */
const FREE_KEY_AGE_MS = 900;
const BILLED_KEY_AGE_MS = 30_000;

export interface HttpServer {
  readonly app: FastifyInstance;
  /** Every open connection. */
  readonly connections: ReadonlySet<Socket>;
  /** Every route that is served, in the order of registration. */
  readonly routes: readonly ServedRoute[];
  /** Every answer that begins from now on closes its connection, so that clients move to another process. */
  drain(): void;
}

/** Makes the server with these routes; it does not listen yet. */
export function createServer(services: HttpServices, routes: readonly Routes[]): HttpServer {
  const { directory, log, people, unknownCallers } = services;
  const app = openApp(services);
  const connections = watchConnections(app.server);
  const shares = new ConnectionShares();
  const paths = new ServedPaths();
  let draining = false;

  /**
   * Keeps a connection over which a valid key came. False: its organization has enough, so the connection ends with this
   * answer.
   */
  const keepFor = ({ organizationId }: Principal, socket: Socket, reply: FastifyReply): boolean => {
    const isTaken = shares.take(socket, organizationId);
    if (isTaken) showedKey(socket);
    else reply.raw.setHeader("connection", "close");
    return isTaken;
  };

  // With `done`, as most callers are known at once: a promise for each request costs time.
  app.addHook("onRequest", (request, reply, done) => {
    const config = request.routeOptions.config ?? {};
    const { access, dialect } = config;
    request.dialect = dialect;
    begin(request, reply, services);
    if (draining) reply.raw.setHeader("connection", "close");
    requireHost(request);
    refuseExpectation(request);
    refuseUpgrade(request, reply);
    const { socket } = request.raw;
    const address = socket.remoteAddress;
    if (access === undefined || access === "none") {
      announceKeyless(reply.raw);
      request.bodyLease = services.bodies.lease("");
      if (!request.is404) return done();
      // Before Fastify looks at the content type: a path without a route gets 404 or 405, whatever body is sent to it.
      const refuse = (principal: Principal | null) => {
        if (principal !== null) keepFor(principal, socket, reply);
        request.caller = principal;
        done(paths.unserved(request, reply));
      };
      const caller = callerOfUnserved({ headers: request.headers, address, directory, people });
      if (caller instanceof Promise) caller.then(refuse, done);
      else refuse(caller);
      return;
    }
    // Requests that cost something or bring a large body are shed.
    if (dialect !== undefined || (access === "inference" && request.method === "POST")) services.shed?.();
    const maxAgeMs = dialect === undefined ? FREE_KEY_AGE_MS : BILLED_KEY_AGE_MS;
    const { headers, method } = request;
    const caller = authenticate({
      headers,
      address,
      needed: access,
      directory,
      people,
      unknownCallers,
      maxAgeMs,
    });
    const goOn = () => done();
    const known = (principal: Principal) => {
      request.caller = principal;
      if (!keepFor(principal, socket, reply)) return done(tooManyConnections(shares.most));
      const fault = kindFault(principal, access, method);
      if (fault !== null) return done(fault);
      request.bodyLease = services.bodies.lease(principal.organizationId);
      const { preflight } = services;
      const judged = preflight && beforeBody(request.raw, config, principal, preflight);
      if (judged === undefined) goOn();
      else judged.then(goOn, done);
    };
    if (caller instanceof Promise) caller.then(known, done);
    else known(caller);
  });
  app.setErrorHandler((error, request, reply) => sendError(error, request, reply, log));

  app.addHook("onRoute", (route) => {
    paths.add(route);
    // An inference returns its lease itself.
    if (route.config?.dialect === undefined) route.handler = releasingAfter(route.handler);
  });
  // The onRequest hook answers first; it runs for paths without a route because a handler of our own is set.
  app.setNotFoundHandler((request, reply) => {
    throw paths.unserved(request, reply);
  });
  for (const add of routes) add(app, services);
  return {
    app,
    connections,
    routes: paths.routes,
    drain: () => {
      draining = true;
      for (const socket of connections) closeWithAnswer(socket);
    },
  };
}

/** Makes the server without hooks and routes: its limits, its answers to what is no HTTP, the members of its requests. */
function openApp(services: HttpServices): FastifyInstance {
  const app = Fastify({
    logger: false,
    http: {
      maxHeaderSize: limits.headerBytes,
      headersTimeout: limits.headersTimeoutMs,
      connectionsCheckingInterval: limits.connectionsCheckMs,
      // Node would answer without a body and a request id; `requireHost` does it in our own form.
      requireHostHeader: false,
    },
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.keepAliveMs,
    forceCloseConnections: "idle",
    return503OnClosing: false,
    genReqId: () => services.newId("req"),
    // An id may be as long as all headers: unknown ids are all answered alike.
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: limits.headerBytes },
    // A URL that cannot be routed: no hook runs for it.
    frameworkErrors: (error, request, reply) => {
      // An undecodable id is an unknown one, which only callers with a key are told (rule 5.7).
      if (error.code === "FST_ERR_BAD_URL") {
        request.raw.url = withLiteralPercents(request.url);
        app.routing(request.raw, reply.raw);
        return;
      }
      request.caller = null;
      request.firstByteAt = null;
      request.dialect = undefined;
      begin(request, reply, services);
      sendError(error, request, reply, services.log);
    },
    clientErrorHandler: (error, socket) => refuseConnection(error, socket, services),
  });
  app.server.maxHeadersCount = limits.headerCount;
  app.server.maxConnections = limits.connections;
  // Node would answer 417 by itself, without a body and a request id.
  app.server.on("checkExpectation", (request, response) => app.server.emit("request", request, response));
  app.server.on("connect", (_request, socket) => refuseConnect(socket as Socket, services));
  letBodiesWait(app.server);
  boundPipelining(app.server);
  boundChunks(app.server);

  // Bodies are read where they are needed, after the key was checked.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", (_request, _payload, done) => done(null));
  app.decorateRequest("caller", null);
  app.decorateRequest("dialect", undefined);
  app.decorateRequest("firstByteAt", null);
  app.decorateRequest("startedAt", 0);
  app.decorateRequest("acceptedAt", 0);
  // Set by the hook of every request before anything can read them; a shared default object would mix requests.
  app.decorateRequest("bodyLease", null as unknown as ByteLease);
  app.decorateRequest("summary", null as unknown as RequestSummary);
  return app;
}

/** Ends connections whose clients take or send nothing. @returns the open ones, as they come and go */
function watchConnections(server: Server): ReadonlySet<Socket> {
  const connections = new Set<Socket>();
  server.on("connection", (socket) => {
    connections.add(socket);
    socket.once("close", () => connections.delete(socket));
  });
  const stalled = new StalledClients(connections);
  // Both stop when Node's server is closed, after its last connection has ended; Fastify's onClose comes before that.
  const keyless = new KeylessConnections(connections);
  server.once("listening", () => {
    const stops = [stalled.start(), keyless.start()];
    server.once("close", () => stops.forEach((stop) => stop()));
  });
  return connections;
}

/**
 * Releases what a handler takes of the body budget after its client left: request-life.ts released the lease when that ended
 * the request.
 */
function releasingAfter(handler: RouteHandlerMethod): RouteHandlerMethod {
  return function (request, reply) {
    const outcome: unknown = handler.call(this, request, reply);
    if (!(outcome instanceof Promise)) return outcome;
    return outcome.finally(() => {
      if (reply.raw.closed) request.bodyLease.release();
    });
  };
}
