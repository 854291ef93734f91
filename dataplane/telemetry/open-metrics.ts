/** The registry's metrics as OpenMetrics 1.0, which alone can carry exemplars. */
import { Registry, type Metric } from "prom-client";

export const OPEN_METRICS_TYPE = Registry.OPENMETRICS_CONTENT_TYPE;

/** Whether whoever scrapes takes OpenMetrics, as its Accept header says. */
export const takesOpenMetrics = (accept: string | undefined): boolean =>
  (accept ?? "").split(",").some((range) => {
    const [type = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    return type === "application/openmetrics-text" && !parameters.some((part) => /^q=0(\.0*)?$/.test(part));
  });

/** What prom-client's registry asks of a metric. */
type Told = Awaited<ReturnType<Metric["get"]>>;
interface Telling {
  readonly name: string;
  get(): Promise<Told>;
  getForPromString?(): Promise<Told>;
}

/**
 * Every metric of a registry. prom-client takes `_total` from the names of the counters that it writes so, and adds it to
 * their values: others stand before ours, so that the plain text keeps its names.
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
