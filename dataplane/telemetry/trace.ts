/**
 * Tracing with spans made by hand (design.md §7). Without an endpoint the SDK is not loaded and every span is null, so
 * that requests pay nothing for it.
 */
import {
  context,
  propagation,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Attributes,
  type Span,
} from "@opentelemetry/api";
import type { IncomingHttpHeaders } from "node:http";
import { ApiError } from "../lib/api-error.ts";
import { causesOf } from "../lib/causes.ts";
import type { RequestSummary } from "./request-summary.ts";
import { serviceResource, type ServiceNames } from "./resource.ts";
import type { Exemplar } from "./tally.ts";

let enabled = false;

/** Loads the SDK and exports to `url`. @returns a function that flushes and stops. */
export async function startTracing(url: string, names: ServiceNames): Promise<() => Promise<void>> {
  const [{ BatchSpanProcessor, NodeTracerProvider }, { OTLPTraceExporter }] = await Promise.all([
    import("@opentelemetry/sdk-trace-node"),
    import("@opentelemetry/exporter-trace-otlp-http"),
  ]);
  const provider = new NodeTracerProvider({
    resource: serviceResource(names),
    spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter({ url }), { maxQueueSize: 4096 })],
  });
  provider.register();
  enabled = true;
  return async () => {
    enabled = false;
    await provider.shutdown();
    for (const api of [trace, context, propagation]) api.disable();
  };
}

/** Starts the span of a whole request, a child of the caller's span if the headers carry one; null when tracing is off. */
export function startRequestSpan(
  name: string,
  headers: IncomingHttpHeaders,
  attributes: () => Attributes = () => ({}),
): Span | null {
  if (!enabled) return null;
  const parent = propagation.extract(context.active(), headers);
  const options = { kind: SpanKind.SERVER, attributes: attributes() };
  return trace.getTracer("gapura").startSpan(name, options, parent);
}

/** The exemplar that links a histogram to this span's trace; null when the trace is not sampled. @param now Unix milliseconds. */
export function exemplarOf(span: Span | null, now: number): Exemplar | null {
  const context = span?.spanContext();
  if (context === undefined || (context.traceFlags & TraceFlags.SAMPLED) === 0) return null;
  return { traceId: context.traceId, at: now / 1_000 };
}

/** Headers that make the upstream's spans children of `span`. */
export function traceHeaders(span: Span): Readonly<Record<string, string>> {
  const headers: Record<string, string> = {};
  propagation.inject(trace.setSpan(context.active(), span), headers);
  // Baggage is the client's and is not passed to the upstream.
  const { traceparent, tracestate } = headers;
  return {
    ...(traceparent === undefined ? {} : { traceparent }),
    ...(tracestate === undefined ? {} : { tracestate }),
  };
}

/**
 * Name of a span: a model call (`chat MODEL`), a tool call (`execute_tool TOOL`), `hold` (credit is reserved) or `settle` (the
 * charge at the end). Names and attributes of the first two follow the GenAI semantic conventions.
 */
export type SpanName = `chat ${string}` | `execute_tool ${string}` | "hold" | "settle";

/** Starts a child span, to be ended with `endSpan`. With a null parent (tracing is off) it allocates nothing and returns null. */
export function startSpan(
  name: SpanName,
  parent: Span | null,
  attributes: () => Attributes = () => ({}),
): Span | null {
  if (parent === null) return null;
  return trace
    .getTracer("gapura")
    .startSpan(
      name,
      { kind: kindOf(name), attributes: attributes() },
      trace.setSpan(context.active(), parent),
    );
}

const kindOf = (name: SpanName): SpanKind => (name.startsWith("chat ") ? SpanKind.CLIENT : SpanKind.INTERNAL);

/** Runs `work` and ends its span with the attributes that `told` makes of the result, or with the error's code. */
export async function inSpan<Result>(
  span: Span | null,
  work: () => Promise<Result>,
  told: (result: Result) => Attributes = () => ({}),
): Promise<Result> {
  if (span === null) return await work();
  try {
    const result = await work();
    endSpan(span, told(result));
    return result;
  } catch (error) {
    endSpan(span, {}, errorCode(error));
    throw error;
  }
}

/** The code of an error for a span; never an upstream's text. */
export const errorCode = (error: unknown): string =>
  causesOf(error).find((cause) => cause instanceof ApiError)?.code ?? "internal";

/** Ends a span; `error` is a code, never an upstream's text. */
export function endSpan(span: Span | null, attributes: Attributes = {}, error: string | null = null): void {
  if (span === null) return;
  span.setAttributes(attributes);
  if (error !== null)
    span.setAttribute("error.type", error).setStatus({ code: SpanStatusCode.ERROR, message: error });
  span.end();
}

/**
 * Ends the span of a whole request, or of a batch's item. With a 4xx status the client was at fault: `error.type` is set and the
 * span's status left unset, as the HTTP semantic conventions require of servers.
 */
export function endRequestSpan(summary: RequestSummary, status: number): void {
  const { span, model, servingPath, errorCode: error } = summary;
  const of = {
    ...(model === null ? {} : { "gen_ai.request.model": model, "gapura.path": servingPath ?? "" }),
    "http.response.status_code": status,
  };
  if (error !== null && status >= 400 && status < 500) endSpan(span, { ...of, "error.type": error });
  else endSpan(span, of, error);
}
