/** The OpenTelemetry resource of this process. */
import type { TracerConfig } from "@opentelemetry/sdk-trace-node";

/** The values that identify a process to its OTLP collector. */
export interface ServiceNames {
  readonly podUid: string;
  readonly version?: string;
  /** `OTEL_SERVICE_NAME`. */
  readonly serviceName?: string | undefined;
  /** `OTEL_RESOURCE_ATTRIBUTES`: `key=value,key=value`, values percent-encoded. */
  readonly attributes?: string | undefined;
}

/** Builds the resource; it does the little of `@opentelemetry/resources` that is needed. The environment's values win. */
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

/** Parses `OTEL_RESOURCE_ATTRIBUTES` as the OpenTelemetry specification defines it; malformed pairs are ignored. */
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
