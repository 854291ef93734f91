/**
 * Traces: spans made by hand (design.md §7). Without an endpoint nothing of the SDK is loaded and every span is
 * null, so that a request pays nothing for it.
 */
import { context, propagation, SpanStatusCode, trace, type Attributes, type Span } from "@opentelemetry/api";
import type { TracerConfig } from "@opentelemetry/sdk-trace-node";
import type { IncomingHttpHeaders } from "node:http";
import { ApiError } from "../lib/api-error.ts";

let enabled = false;

/** Loads the SDK and exports to `endpoint`. @returns flushes and stops. */
export async function startTracing(endpoint: string, podUid: string): Promise<() => Promise<void>> {
  const [{ BatchSpanProcessor, NodeTracerProvider }, { OTLPTraceExporter }] = await Promise.all([
    import("@opentelemetry/sdk-trace-node"),
    import("@opentelemetry/exporter-trace-otlp-http"),
  ]);
  const url = `${endpoint.replace(/\/+$/, "")}/v1/traces`;
  const provider = new NodeTracerProvider({
    resource: serviceResource(podUid),
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

/** The little of `@opentelemetry/resources` that is needed to name this process. */
function serviceResource(podUid: string): NonNullable<TracerConfig["resource"]> {
  const attributes = { "service.name": "gapura", "service.instance.id": podUid };
  const resource = { attributes, merge: () => resource, getRawAttributes: () => Object.entries(attributes) };
  return resource;
}

/** The span of a whole request, child of the caller's when the headers carry one; null when tracing is off. */
export function startRequestSpan(name: string, headers: IncomingHttpHeaders): Span | null {
  if (!enabled) return null;
  const parent = propagation.extract(context.active(), headers);
  return trace.getTracer("gapura").startSpan(name, {}, parent);
}

/** What a span is of: a model's call, a tool's call, a hold of credit; `settle` is the charge at the end. */
export type SpanName = "iteration" | "tool" | "hold" | "settle";

/** A span below another; null when tracing is off, and then nothing is made for it. End it with `endSpan`. */
export function startSpan(
  name: SpanName,
  parent: Span | null,
  attributes: () => Attributes = () => ({}),
): Span | null {
  if (parent === null) return null;
  return trace
    .getTracer("gapura")
    .startSpan(name, { attributes: attributes() }, trace.setSpan(context.active(), parent));
}

/** Runs `work` under a span and ends it, with what `told` says of the result or with the error's code. */
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

/** The code of what failed, for a span: never an upstream's text. */
export function errorCode(error: unknown): string {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof ApiError) return cause.code;
  }
  return "internal";
}

/** Ends a span; `error` is a code, never an upstream's text. */
export function endSpan(span: Span | null, attributes: Attributes = {}, error: string | null = null): void {
  if (span === null) return;
  span.setAttributes(attributes);
  if (error !== null) span.setStatus({ code: SpanStatusCode.ERROR, message: error });
  span.end();
}
