import type { FastifyReply, FastifyRequest } from "fastify";
import type { IncomingHttpHeaders, ServerResponse } from "node:http";
import type { Meter } from "../../billing/meter.ts";
import { dialectPath, dialects, type Dialect } from "../../dialects/dialect.ts";
import type { InferenceCall, Serve } from "../../inference/call.ts";
import { rememberRefused } from "../../inference/refused-call.ts";
import { ApiError } from "../../lib/api-error.ts";
import { metrics } from "../../telemetry/metrics.ts";
import { HttpAnswerSink } from "../answer-sink.ts";
import { limits } from "../limits.ts";
import { ownHeaders } from "../own-headers.ts";
import { readBody, requireJsonType } from "../request-body.ts";
import { callerOf, type HttpServices, type Routes } from "../route.ts";

export interface InferenceRoutesNeeds {
  readonly meter: Meter;
  /** `inference/serve.ts`: throws an ApiError as long as nothing was written. */
  readonly serve: Serve;
}

/**
 * `POST /v1/messages`, `/v1/chat/completions`, `/v1/responses`. They answer in the last hook before Fastify looks for a body
 * parser, and read the body themselves: even for a parser that does nothing Fastify makes an asynchronous resource for each
 * request.
 */
export const inferenceRoutes =
  (needs: InferenceRoutesNeeds): Routes =>
  (app, services) => {
    for (const dialect of dialects) {
      app.post(
        dialectPath[dialect],
        {
          config: { access: "inference", dialect },
          onRequest: (request, reply, done) => {
            infer(dialect, request, reply, services, needs).then(undefined, done);
          },
        },
        () => {
          throw new Error(`${dialectPath[dialect]} was not answered by its hook`);
        },
      );
    }
  };

async function infer(
  dialect: Dialect,
  request: FastifyRequest,
  reply: FastifyReply,
  services: HttpServices,
  needs: InferenceRoutesNeeds,
): Promise<void> {
  requireJsonType(request.raw);
  const { summary } = request;
  summary.serving = true;
  // One function from here to the end: each further async function costs every request a microsecond.
  try {
    const body = await readBody(request, limits.inferenceBodyBytes);
    const sink = new HttpAnswerSink(
      reply.raw,
      () => {
        reply.hijack();
        request.firstByteAt = performance.now();
        return ownHeaders(request, request.firstByteAt);
      },
      () => {
        metrics.streamFaults.inc({ dialect, kind: "stalled_client" });
        services.log.info({ request_id: request.id }, "cut a client that took nothing for a minute");
      },
    );
    const call: InferenceCall = {
      id: request.id,
      acceptedAt: request.acceptedAt,
      dialect,
      body,
      bodyLease: request.bodyLease,
      headers: headersOf(request.headers),
      principal: callerOf(request),
      directory: services.directory,
      snapshot: services.snapshot(),
      meter: needs.meter,
      batchId: null,
      sink,
      shutdown: services.shutdown,
      log: services.log,
      summary: request.summary,
    };
    try {
      await needs.serve(call);
    } catch (error) {
      rememberRefused(call);
      if (!sink.started && !sink.closed.aborted) throw error;
      if (!sink.closed.aborted) {
        // By the contract of `InferenceCall` this cannot happen; cut, so that the client does not take the answer for complete.
        services.log.error(
          { request_id: request.id, err: error },
          "serving failed after the answer had begun",
        );
        request.summary.errorCode ??= error instanceof ApiError ? error.code : "internal";
        sink.cut();
      }
    }
    if (!sink.started && !sink.closed.aborted) throw new Error("serving ended without an answer");
    // The client left before there was anything to say.
    if (!reply.sent) reply.hijack();
  } finally {
    // Not when the connection closes: after a client left, the upstream's answer may still be read.
    request.bodyLease.release();
    countUntilOut(reply.raw, request.bodyLease);
    summary.serving = false;
    summary.served?.();
  }
}

/** Counts what a slow client has not taken yet of a long answer, until it has or is gone (rule 7.2). */
function countUntilOut(response: ServerResponse, lease: FastifyRequest["bodyLease"]): void {
  const bytes = response.writableLength;
  if (bytes <= limits.uncountedAnswerBytes || response.destroyed) return;
  lease.count(bytes);
  response.once("close", () => lease.release());
}

const passedHeaders = [
  "anthropic-version",
  "anthropic-beta",
  "accept",
  "x-gapura-strict",
  "x-session-id",
  "x-gapura-tags",
] as const satisfies readonly (keyof InferenceCall["headers"])[];

/** The headers that go further: a key never leaves this room. */
function headersOf(headers: IncomingHttpHeaders): InferenceCall["headers"] {
  const passed: Record<string, string> = {};
  for (const name of passedHeaders) {
    const value = headers[name];
    if (typeof value === "string") passed[name] = value;
  }
  return passed;
}
