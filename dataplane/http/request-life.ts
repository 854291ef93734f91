/** The observation of a request from beginning to end: its record, its ids, its line in the log, its metrics. */
import type { IncomingHttpHeaders } from "node:http";
import type { FastifyReply, FastifyRequest } from "fastify";
import { logRequest } from "../telemetry/log.ts";
import { countRequest } from "../telemetry/counts.ts";
import { requestLine } from "../telemetry/request-line.ts";
import { requestRecord, type RequestRecords } from "../telemetry/request-record.ts";
import { newRequestSummary } from "../telemetry/request-summary.ts";
import { endRequestSpan, exemplarOf, startRequestSpan } from "../telemetry/trace.ts";
import { wasCut } from "./cut-connections.ts";
import { pathOf, withoutKeys } from "./error-style.ts";
import { loggedId } from "./logged-id.ts";
import { endLingering } from "./linger.ts";
import type { HttpServices } from "./route.ts";
import { networkOf } from "./unknown-callers.ts";

/** Prepares every request before anything else: its summary, its ids, neutral header names, and the log line at its end. */
export function begin(request: FastifyRequest, reply: FastifyReply, services: HttpServices): void {
  request.startedAt = performance.now();
  request.acceptedAt = services.clock.now();
  const { headers } = request.raw;
  const { "vendor-version": version, "vendor-beta": beta } = headers;
  if (version !== undefined) headers["anthropic-version"] ??= version;
  if (beta !== undefined) headers["anthropic-beta"] = bothLists(headers["anthropic-beta"], beta);
  request.summary = newRequestSummary(startRequestSpan(spanName(request), headers, () => spanFacts(request)));
  // An inference answer writes these itself: headers that were set before are written the slow way.
  if (request.dialect === undefined)
    reply.raw.setHeader("request-id", request.id).setHeader("x-request-id", request.id);
  reply.raw.on("close", () => finish(request, reply, services));
}

type HeaderValue = IncomingHttpHeaders[string];

/** Joins a list that came under both of its names, so that neither part is lost. */
const bothLists = (official: HeaderValue, neutral: HeaderValue): HeaderValue =>
  [...new Set([official, neutral].flat())].filter(Boolean).join(", ");

/** Span name by HTTP's semantic conventions; the route has no ids in it. */
const spanName = ({ method, routeOptions }: FastifyRequest): string =>
  routeOptions.url === undefined ? method : `${method} ${routeOptions.url}`;

const spanFacts = ({ id, method, routeOptions }: FastifyRequest) => ({
  "http.request.method": method,
  ...(routeOptions.url === undefined ? {} : { "http.route": routeOptions.url }),
  "gapura.request_id": id,
});

/** The line, the counts, the span and the record of a request that is over, whether it was answered or the client left. */
function finish(request: FastifyRequest, reply: FastifyReply, services: HttpServices): void {
  const { summary, caller, startedAt, firstByteAt } = request;
  if (!request.raw.complete) {
    const sender = caller?.organizationId ?? networkOf(request.raw.socket.remoteAddress);
    endLingering(request.raw, sender, request.id);
  }
  // An inference returns its lease itself, once its serving has ended.
  if (request.dialect === undefined) request.bodyLease?.release();
  const isOurs = wasCut(request.raw.socket);
  const status = reply.raw.writableFinished ? reply.raw.statusCode : isOurs ? 503 : 499;
  if (status === 503 && isOurs) summary.errorCode ??= "unavailable";
  const whole = (performance.now() - startedAt) / 1000;
  countRequest({
    dialect: request.dialect ?? "other",
    model: summary.model ?? "none",
    status,
    whole,
    firstByte: firstByteAt === null ? null : (firstByteAt - startedAt) / 1000,
    upstreamWait: summary.upstreamWaitMs / 1000,
    exemplar: exemplarOf(summary.span, services.clock.now()),
  });
  if (summary.span !== null) endRequestSpan(summary, status);
  const line = requestLine(
    {
      id: request.id,
      method: request.method,
      path: withoutKeys(pathOf(request.url)),
      status,
      seconds: whole,
      organizationId: caller?.organizationId,
      keyId: caller?.keyId,
      clientId: clientId(request),
    },
    summary,
  );
  logRequest(services.log, status >= 500 ? "warn" : "info", line);
  keepRecord(request, { status, durationMs: whole * 1000 }, services.records);
}

/** Keeps the request's record, once its serving has ended as well. */
function keepRecord(
  request: FastifyRequest,
  { status, durationMs }: { readonly status: number; readonly durationMs: number },
  records: RequestRecords | undefined,
): void {
  if (records === undefined) return;
  const { summary, caller, dialect, startedAt, firstByteAt } = request;
  const keep = () =>
    records.add(
      requestRecord(
        {
          id: request.id,
          acceptedAt: request.acceptedAt,
          organizationId: caller?.organizationId ?? null,
          projectId: caller?.projectId ?? null,
          keyId: caller?.keyId ?? null,
          method: request.method,
          url: withoutKeys(pathOf(request.url)),
          dialect: dialect ?? null,
          status,
          firstByteMs: firstByteAt === null ? null : firstByteAt - startedAt,
          durationMs,
          batchId: null,
        },
        summary,
      ),
    );
  if (summary.serving) summary.served = keep;
  else keep();
}

/** The caller's own id, for finding its request in the log; nothing else is done with it. */
function clientId(request: FastifyRequest): string | undefined {
  const id = request.headers["x-client-request-id"];
  return typeof id === "string" ? loggedId(id) : undefined;
}
