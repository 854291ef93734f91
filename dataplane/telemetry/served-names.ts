/**
 * Series of models and upstreams end a while after these have left the configuration. Whoever declares ever new names would else
 * fill the memory of this process, and of whoever scrapes it.
 */
import { forgetCounts } from "./counts.ts";
import { metrics } from "./metrics.ts";

/** Whoever scrapes has read the last counts by then, and the last answers are over. */
const GONE_MS = 10 * 60_000;

/** Labels of a series of a model, or of one of its upstreams. */
export interface NamedLabels {
  readonly model: string;
  readonly upstream?: string;
}

/** Ids of models have no space. */
const nameOf = ({ model, upstream }: NamedLabels): string =>
  upstream === undefined ? model : `${model} ${upstream}`;

/** Metrics with such series. */
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
  /** Those that left since they were last looked at, with when. */
  readonly #gone = new Map<string, { readonly labels: NamedLabels; readonly at: number }>();

  /** These are served from now on. @param now milliseconds that only grow. */
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
   * When somebody has been gone for long enough: there may be hundreds of thousands of series to look through. Also what nobody
   * remembers goes then: a last answer may have brought its series back.
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
