/**
 * Model calls in OpenTelemetry's GenAI semantic conventions (1.45): a span for each call of a traced request, and the
 * histograms `gen_ai.client.operation.duration` and `gen_ai.client.token.usage` of all calls, exported over OTLP. With
 * tracing and metrics both off, nothing is allocated.
 */
import type { Attributes, Histogram, Span } from "@opentelemetry/api";
import type { Try } from "./request-summary.ts";
import { serviceResource, type ServiceNames } from "./resource.ts";
import { endSpan, startSpan } from "./trace.ts";

interface Instruments {
  readonly duration: Histogram;
  readonly tokens: Histogram;
}
/** null: metrics are not exported. */
let instruments: Instruments | null = null;

/** Bucket bounds recommended by the conventions, in seconds and in tokens. */
const DURATION_BOUNDS = Array.from({ length: 14 }, (_, power) => 0.01 * 2 ** power);
const TOKEN_BOUNDS = Array.from({ length: 14 }, (_, power) => 4 ** power);
/** Longest time of one export; observations made meanwhile are in the next one. */
const EXPORT_TIMEOUT_MS = 5_000;

/**
 * Loads the SDK and exports to `url` every `intervalMs`. An unreachable collector costs requests nothing: histograms are a
 * few numbers for each model. @returns a function that exports the rest and stops, within five seconds.
 */
export async function startModelMetrics(
  url: string,
  names: ServiceNames,
  intervalMs: number,
): Promise<() => Promise<void>> {
  const [{ MeterProvider, PeriodicExportingMetricReader }, { OTLPMetricExporter }] = await Promise.all([
    import("@opentelemetry/sdk-metrics"),
    import("@opentelemetry/exporter-metrics-otlp-http"),
  ]);
  const reader = new PeriodicExportingMetricReader({
    exporter: new OTLPMetricExporter({ url, timeoutMillis: EXPORT_TIMEOUT_MS }),
    exportIntervalMillis: intervalMs,
    exportTimeoutMillis: Math.min(EXPORT_TIMEOUT_MS, intervalMs),
  });
  const provider = new MeterProvider({ resource: serviceResource(names), readers: [reader] });
  const meter = provider.getMeter("gapura", names.version);
  instruments = {
    duration: meter.createHistogram("gen_ai.client.operation.duration", {
      description: "GenAI operation duration.",
      unit: "s",
      advice: { explicitBucketBoundaries: DURATION_BOUNDS },
    }),
    tokens: meter.createHistogram("gen_ai.client.token.usage", {
      description: "Number of input and output tokens used.",
      unit: "{token}",
      advice: { explicitBucketBoundaries: TOKEN_BOUNDS },
    }),
  };
  return async () => {
    instruments = null;
    // An unreachable collector is not our error.
    await provider.shutdown({ timeoutMillis: EXPORT_TIMEOUT_MS }).catch(() => undefined);
  };
}

/** `gen_ai.provider.name` of each dialect. */
const providers = { messages: "anthropic", chat: "openai", responses: "openai" } as const;

/** The model that is called, and how. */
export interface CalledModel {
  /** Public id. */
  readonly model: string;
  readonly upstreams: readonly { readonly dialect: keyof typeof providers }[];
  /** 1 for the first call of a request. */
  readonly iteration: number;
  readonly stream: boolean;
}

/** Charged tokens: input includes cached tokens, output includes reasoning. */
export interface ModelTokens {
  readonly input: number;
  readonly output: number;
}

export interface ModelCallEnd {
  /** null: nothing is charged. */
  readonly tokens: ModelTokens | null;
  /** Attributes of the span; the histograms do not have them. */
  readonly attributes?: Attributes;
  /** Error code, or `CANCELLED`; null: the call succeeded. */
  readonly error?: string | null;
  /** Its last try; undefined: no upstream was asked. */
  readonly last?: Try | undefined;
}

/** `error.type` of a call that nobody waits for any more: its client left. */
export const CANCELLED = "cancelled";

/** A model call in progress. */
export interface ModelCall {
  /** null: the request is not traced. */
  readonly span: Span | null;
  end(end: ModelCallEnd): void;
}

/** Begins a call as a child of the request's span. @returns null when it is neither traced nor measured. */
export function beginModelCall(parent: Span | null, called: CalledModel): ModelCall | null {
  const measures = instruments;
  if (parent === null && measures === null) return null;
  const { model, upstreams, iteration, stream } = called;
  const shared: Attributes = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": providers[upstreams[0]?.dialect ?? "chat"],
    "gen_ai.request.model": model,
  };
  const span = startSpan(`chat ${model}`, parent, () => ({
    ...shared,
    "gen_ai.request.stream": stream,
    "gapura.iteration": iteration,
  }));
  const startedAt = performance.now();
  return {
    span,
    end: ({ tokens, attributes = {}, error = null, last }) => {
      if (span !== null) endSpan(span, { ...attributes, ...faultOf(last), ...spanTokens(tokens) }, error);
      if (measures === null) return;
      measures.duration.record((performance.now() - startedAt) / 1_000, {
        ...shared,
        ...(error === null ? {} : { "error.type": error }),
      });
      if (tokens === null) return;
      measures.tokens.record(tokens.input, { ...shared, "gen_ai.token.type": "input" });
      measures.tokens.record(tokens.output, { ...shared, "gen_ai.token.type": "output" });
    },
  };
}

/** Why the last try failed, as the request's record has it; nothing where it did not. */
const faultOf = (last: Try | undefined): Attributes =>
  last === undefined || last.fault === null
    ? {}
    : {
        "gapura.fault": last.fault,
        ...(last.reason === null ? {} : { "gapura.reason": last.reason }),
        ...(last.status === null ? {} : { "http.response.status_code": last.status }),
      };

const spanTokens = (tokens: ModelTokens | null): Attributes =>
  tokens === null
    ? {}
    : { "gen_ai.usage.input_tokens": tokens.input, "gen_ai.usage.output_tokens": tokens.output };
