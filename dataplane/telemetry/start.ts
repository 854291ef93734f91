/** Starts the export over OTLP/HTTP: traces, and the metrics of model calls (rule 14.3). */
import { startModelMetrics } from "./model-call.ts";
import { startTracing } from "./trace.ts";

/** The environment variables that configure the export. */
export interface TelemetryEnvironment {
  readonly POD_UID: string;
  /** Base URL of both signals; a signal's own endpoint is used unchanged. */
  readonly OTEL_EXPORTER_OTLP_ENDPOINT?: string | undefined;
  readonly OTEL_EXPORTER_OTLP_TRACES_ENDPOINT?: string | undefined;
  readonly OTEL_EXPORTER_OTLP_METRICS_ENDPOINT?: string | undefined;
  /** False: this signal is not exported. */
  readonly OTEL_TRACES_EXPORTER: boolean;
  readonly OTEL_METRICS_EXPORTER: boolean;
  /** Milliseconds. */
  readonly OTEL_METRIC_EXPORT_INTERVAL: number;
  readonly OTEL_SERVICE_NAME?: string | undefined;
  readonly OTEL_RESOURCE_ATTRIBUTES?: string | undefined;
}

/** @returns a function that exports the rest and stops. */
export async function startTelemetry(
  environment: TelemetryEnvironment,
  version: string,
): Promise<() => Promise<void>> {
  const names = {
    podUid: environment.POD_UID,
    version,
    serviceName: environment.OTEL_SERVICE_NAME,
    attributes: environment.OTEL_RESOURCE_ATTRIBUTES,
  };
  const base = environment.OTEL_EXPORTER_OTLP_ENDPOINT?.replace(/\/+$/, "");
  const urlOf = (signal: "traces" | "metrics", own: string | undefined) =>
    own ?? (base === undefined ? undefined : `${base}/v1/${signal}`);
  const traces = urlOf("traces", environment.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT);
  const metrics = urlOf("metrics", environment.OTEL_EXPORTER_OTLP_METRICS_ENDPOINT);
  const stops: (() => Promise<void>)[] = [];
  if (traces !== undefined && environment.OTEL_TRACES_EXPORTER) stops.push(await startTracing(traces, names));
  if (metrics !== undefined && environment.OTEL_METRICS_EXPORTER)
    stops.push(await startModelMetrics(metrics, names, environment.OTEL_METRIC_EXPORT_INTERVAL));
  return async () => {
    await Promise.all(stops.map((stop) => stop()));
  };
}
