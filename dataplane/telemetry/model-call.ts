/**
 * Calls of models, as OpenTelemetry's GenAI conventions (1.45) tell them: a span of each that is traced, and
 * `gen_ai.client.operation.duration` and `gen_ai.client.token.usage` of all over OTLP. With neither, nothing is made.
 */
import type { Attributes, Histogram, Span } from "@opentelemetry/api";
import { serviceResource, type ServiceNames } from "./resource.ts";
import { endSpan, startSpan } from "./trace.ts";

interface Instruments {
  readonly duration: Histogram;
  readonly tokens: Histogram;
}
/** null: nobody collects them. */
let instruments: Instruments | null = null;

/** The bounds that the conventions advise, in seconds and in tokens. */
const DURATION_BOUNDS = Array.from({ length: 14 }, (_, power) => 0.01 * 2 ** power);
const TOKEN_BOUNDS = Array.from({ length: 14 }, (_, power) => 4 ** power);
/** One export may take so long; what comes meanwhile is in the next one. */
const EXPORT_TIMEOUT_MS = 5_000;

/**
 * Loads the SDK and exports to `url` every `intervalMs`. A collector that is away costs requests nothing: histograms
 * are a few numbers for each model. @returns sends what there is and stops, within five seconds.
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
    // A collector that is away is no fault of ours.
    await provider.shutdown({ timeoutMillis: EXPORT_TIMEOUT_MS }).catch(() => undefined);
  };
}

/** Who speaks a dialect, as the conventions name it. */
const providers = { messages: "anthropic", chat: "openai", responses: "openai" } as const;

/** What a call is of. */
export interface CalledModel {
  /** Public id. */
  readonly model: string;
  readonly upstreams: readonly { readonly dialect: keyof typeof providers }[];
  /** The first call of a request is 1. */
  readonly iteration: number;
  readonly stream: boolean;
}

/** Tokens that are charged for, those that a cache had within the input, reasoning within the output. */
export interface ModelTokens {
  readonly input: number;
  readonly output: number;
}

export interface ModelCallEnd {
  /** null: nothing is charged. */
  readonly tokens: ModelTokens | null;
  /** Of the span alone. */
  readonly attributes?: Attributes;
  /** The code of what failed. */
  readonly error?: string | null;
}

/** A call that is under way. */
export interface ModelCall {
  /** null: the request is not traced. */
  readonly span: Span | null;
  end(end: ModelCallEnd): void;
}

/** Begins a call below the request's span. @returns null when it is neither traced nor measured. */
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
    end: ({ tokens, attributes = {}, error = null }) => {
      if (span !== null) endSpan(span, { ...attributes, ...spanTokens(tokens) }, error);
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

const spanTokens = (tokens: ModelTokens | null): Attributes =>
  tokens === null
    ? {}
    : { "gen_ai.usage.input_tokens": tokens.input, "gen_ai.usage.output_tokens": tokens.output };
