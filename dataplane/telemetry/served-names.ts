/**
 * Removes the series of models and upstreams some time after they have left the configuration. Otherwise a tenant who
 * declares ever new names would fill the memory of this process and of Prometheus.
 */
import { forgetCounts } from "./counts.ts";
import { metrics } from "./metrics.ts";

/** Time until a series is removed: by then its last counts are scraped and the last answers are over. */
const GONE_MS = 10 * 60_000;

/** Labels of the series of a model, or of one of its upstreams. */
export interface NamedLabels {
  readonly model: string;
  readonly upstream?: string;
}

/** One text for both labels; ids of models have no space. */
const nameOf = ({ model, upstream }: NamedLabels): string =>
  upstream === undefined ? model : `${model} ${upstream}`;

/** Metrics with series by model or by model and upstream. */
const named = [
  metrics.requests,
  metrics.requestDuration,
  metrics.firstByte,
  metrics.tokens,
  metrics.credits,
  metrics.upstreamRequests,
  metrics.upstreamActive,
  metrics.implausibleUsage,
];

export class ServedNames {
  #served: ReadonlyMap<string, NamedLabels> = new Map();
  /** Names that have left the configuration and still have series, with the time of leaving. */
  readonly #gone = new Map<string, { readonly labels: NamedLabels; readonly at: number }>();

  /** Notes the routes that are served from now on. @param now monotonic milliseconds. */
  serve(
    routes: readonly { readonly model: string; readonly upstreams: readonly { readonly name: string }[] }[],
    now = performance.now(),
  ): void {
    const served = new Map<string, NamedLabels>();
    for (const { model, upstreams } of routes)
      for (const labels of [{ model }, ...upstreams.map(({ name }) => ({ model, upstream: name }))])
        served.set(nameOf(labels), labels);
    for (const [name, labels] of this.#served)
      if (!served.has(name)) this.#gone.set(name, { labels, at: now });
    for (const name of served.keys()) this.#gone.delete(name);
    this.#served = served;
    this.#forget(now);
  }

  /**
   * Removes series once a name has been gone for `GONE_MS`; not before, as there may be hundreds of thousands of series to
   * look through. Series of names that are neither served nor remembered go too: a late answer may have created one again.
   */
  #forget(now: number): void {
    const over = [...this.#gone].filter(([, { at }]) => now - at >= GONE_MS);
    if (over.length === 0) return;
    for (const [name, { labels }] of over) {
      this.#gone.delete(name);
      const { model, upstream } = labels;
      if (upstream !== undefined) metrics.upstreamEjected.remove({ model, upstream });
    }
    const isGone = (labels: NamedLabels): boolean => {
      const name = nameOf(labels);
      return labels.model !== "none" && !this.#served.has(name) && !this.#gone.has(name);
    };
    for (const metric of named) metric.forget(isGone);
    forgetCounts(isGone);
  }
}
