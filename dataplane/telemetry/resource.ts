/** How this process names itself in what it sends over OTLP. */
import type { TracerConfig } from "@opentelemetry/sdk-trace-node";

/** How a process names itself to whoever collects its telemetry. */
export interface ServiceNames {
  readonly podUid: string;
  readonly version?: string;
  /** `OTEL_SERVICE_NAME`. */
  readonly serviceName?: string | undefined;
  /** `OTEL_RESOURCE_ATTRIBUTES`: `key=value,key=value`, values percent-encoded. */
  readonly attributes?: string | undefined;
}

/** The little of `@opentelemetry/resources` that is needed to name this process. What the variables say wins. */
export function serviceResource(names: ServiceNames): NonNullable<TracerConfig["resource"]> {
  const attributes: Record<string, string> = {
    "service.name": "gapura",
    "service.instance.id": names.podUid,
    ...(names.version === undefined ? {} : { "service.version": names.version }),
    ...resourceAttributes(names.attributes ?? ""),
    ...(names.serviceName === undefined ? {} : { "service.name": names.serviceName }),
  };
  const resource = { attributes, merge: () => resource, getRawAttributes: () => Object.entries(attributes) };
  return resource;
}

/** As the OpenTelemetry specification writes them; what it cannot be is left out. */
function resourceAttributes(text: string): Record<string, string> {
  const pairs = text.split(",").flatMap((pair): [string, string][] => {
    const [, key = "", value = ""] = /^\s*([^=\s]+)\s*=(.*)$/.exec(pair) ?? [];
    try {
      return key === "" ? [] : [[decodeURIComponent(key), decodeURIComponent(value.trim())]];
    } catch {
      return [];
    }
  });
  return Object.fromEntries(pairs);
}
