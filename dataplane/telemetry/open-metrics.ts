/** Writes the registry's metrics as OpenMetrics 1.0, the only text format with exemplars. */
import { Registry, type Metric } from "prom-client";

export const OPEN_METRICS_TYPE = Registry.OPENMETRICS_CONTENT_TYPE;

/** Whether the scraper's Accept header asks for OpenMetrics. */
export const takesOpenMetrics = (accept: string | undefined): boolean =>
  (accept ?? "").split(",").some((range) => {
    const [type = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    return type === "application/openmetrics-text" && !parameters.some((part) => /^q=0(\.0*)?$/.test(part));
  });

/** A metric's values in prom-client's form. */
type Told = Awaited<ReturnType<Metric["get"]>>;
interface Telling {
  readonly name: string;
  get(): Promise<Told>;
  getForPromString?(): Promise<Told>;
}

/**
 * Writes every metric of a registry. prom-client renames counters for OpenMetrics: it strips `_total` from the metric's name
 * and adds it to its values. Copies are registered here, so that the plain text format keeps the original names.
 */
export async function openMetricsOf(registry: Registry): Promise<string> {
  const open = new Registry<typeof OPEN_METRICS_TYPE>();
  open.setContentType(OPEN_METRICS_TYPE);
  for (const metric of registry.getMetricsAsArray() as unknown as readonly Telling[]) {
    const standIn: Telling = {
      name: metric.name,
      get: async () => {
        const told = await (metric.getForPromString?.() ?? metric.get());
        return String(told.type) === "counter" ? { ...told, name: told.name.replace(/_total$/, "") } : told;
      },
    };
    open.registerMetric(standIn as unknown as Metric);
  }
  return await open.metrics();
}
