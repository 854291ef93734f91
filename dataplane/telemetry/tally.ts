/**
 * Metrics for the hot path. prom-client hashes and checks a series' labels at each count, even through a child that it
 * handed out before; here a count is an addition, and prom-client gets the sums when the metrics are scraped.
 */
import {
  Counter,
  Gauge,
  Histogram,
  type CounterConfiguration,
  type GaugeConfiguration,
  type HistogramConfiguration,
  type MetricValueWithName,
} from "prom-client";

type Labels<Name extends string> = Record<Name, string>;

/** The count of one series. */
export interface Tally {
  value: number;
}

/** The series of one metric, by their labels. */
class Series<Name extends string, One = Tally> {
  readonly #known = new Map<string, { readonly labels: Labels<Name>; readonly one: One }>();
  readonly #make: () => One;

  constructor(make: () => One) {
    this.#make = make;
  }

  of(labels: Labels<Name>): One {
    const key = JSON.stringify(labels);
    const known = this.#known.get(key);
    if (known !== undefined) return known.one;
    const one = this.#make();
    this.#known.set(key, { labels, one });
    return one;
  }

  each(tell: (labels: Labels<Name>, one: One) => void): void {
    for (const { labels, one } of this.#known.values()) tell(labels, one);
  }

  /** Removes the series that `isGone` selects and returns their labels. A kept reference to one counts nothing any more. */
  forget(isGone: (labels: Labels<Name>) => boolean): readonly Labels<Name>[] {
    const gone = [...this.#known].filter(([, { labels }]) => isGone(labels));
    for (const [key] of gone) this.#known.delete(key);
    return gone.map(([, { labels }]) => labels);
  }
}

const nothing = (): Tally => ({ value: 0 });

export class TallyCounter<Name extends string> extends Counter<Name> {
  readonly #series = new Series<Name>(nothing);

  constructor(configuration: CounterConfiguration<Name>) {
    super({
      ...configuration,
      collect: () =>
        this.#series.each((labels, tally) => {
          this.inc(labels, tally.value);
          tally.value = 0;
        }),
    });
  }

  /** A series to keep: what is added to its value is counted. The same one for the same labels, until it is forgotten. */
  series(labels: Labels<Name>): Tally {
    return this.#series.of(labels);
  }

  /** As of `Series`. */
  forget(isGone: (labels: Labels<Name>) => boolean): void {
    for (const labels of this.#series.forget(isGone)) this.remove(labels);
  }
}

/**
 * A counter of credits whose series count micro-credits: a sum of many fractions of a credit would show rounding errors,
 * such as 0.052677999999999996.
 */
export class CreditCounter<Name extends string> extends Counter<Name> {
  readonly #series = new Series<Name>(nothing);

  constructor(configuration: CounterConfiguration<Name>) {
    super({
      ...configuration,
      collect: () =>
        this.#series.each((labels, micros) => {
          this.remove(labels);
          this.inc(labels, micros.value / 1e6);
        }),
    });
  }

  /** A series to keep: its value, in micro-credits, only grows. The same one for the same labels, until it is forgotten. */
  series(labels: Labels<Name>): Tally {
    return this.#series.of(labels);
  }

  /** As of `Series`. */
  forget(isGone: (labels: Labels<Name>) => boolean): void {
    for (const labels of this.#series.forget(isGone)) this.remove(labels);
  }
}

export class TallyGauge<Name extends string> extends Gauge<Name> {
  readonly #series = new Series<Name>(nothing);

  constructor(configuration: GaugeConfiguration<Name>) {
    super({
      ...configuration,
      collect: () => this.#series.each((labels, tally) => this.set(labels, tally.value)),
    });
  }

  /** A series to keep: its value is what the gauge shows. The same one for the same labels, until it is forgotten. */
  series(labels: Labels<Name>): Tally {
    return this.#series.of(labels);
  }

  /** As of `Series`. */
  forget(isGone: (labels: Labels<Name>) => boolean): void {
    for (const labels of this.#series.forget(isGone)) this.remove(labels);
  }
}

/** The trace of one observation, shown as an OpenMetrics exemplar. */
export interface Exemplar {
  readonly traceId: string;
  /** Unix seconds. */
  readonly at: number;
}

/** The buckets of one histogram series. */
export class Observations {
  /** Upper bounds, ascending. */
  readonly #bounds: readonly number[];
  /** Observations in each bucket (not cumulative); the last bucket is above all bounds. */
  readonly #counts: number[];
  /** The newest exemplar of each bucket; null: no observation was traced. */
  #exemplars: (({ readonly value: number } & Exemplar) | undefined)[] | null = null;
  #sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = Array.from({ length: bounds.length + 1 }, () => 0);
  }

  /** Counts one observation. @param exemplar null: the request's trace is not kept. */
  observe(value: number, exemplar: Exemplar | null = null): void {
    const bounds = this.#bounds;
    let at = 0;
    while (at < bounds.length && value > (bounds[at] as number)) at += 1;
    this.#counts[at] = (this.#counts[at] as number) + 1;
    this.#sum += value;
    if (exemplar !== null) (this.#exemplars ??= [])[at] = { value, ...exemplar };
  }

  /** The series' values in prom-client's form. */
  told<Name extends string>(name: string, labels: Labels<Name>): MetricValueWithName<Name>[] {
    let count = 0;
    const buckets = [...this.#bounds, "+Inf"].map((le, at) => {
      count += this.#counts[at] ?? 0;
      const kept = this.#exemplars?.[at];
      return {
        metricName: `${name}_bucket`,
        labels: { le, ...labels },
        value: count,
        ...(kept !== undefined && {
          exemplar: { labelSet: { trace_id: kept.traceId }, value: kept.value, timestamp: kept.at },
        }),
      };
    });
    return [
      ...buckets,
      { metricName: `${name}_sum`, labels, value: this.#sum },
      { metricName: `${name}_count`, labels, value: count },
    ];
  }
}

/** A histogram that is observed through its `series` only; prom-client's own methods are hidden. */
export class TallyHistogram<Name extends string> extends Histogram<Name> {
  declare observe: never;
  declare labels: never;
  declare startTimer: never;
  readonly #series: Series<Name, Observations>;
  readonly #told: Pick<HistogramConfiguration<Name>, "name" | "help">;

  constructor({ buckets, ...configuration }: HistogramConfiguration<Name> & { readonly buckets: number[] }) {
    super({ ...configuration, buckets });
    this.#told = { name: configuration.name, help: configuration.help };
    this.#series = new Series(() => new Observations(buckets));
  }

  /** A series to keep. The same one for the same labels, until it is forgotten. */
  series(labels: Labels<Name>): Observations {
    return this.#series.of(labels);
  }

  /** As of `Series`. */
  forget(isGone: (labels: Labels<Name>) => boolean): void {
    this.#series.forget(isGone);
  }

  override async get(): Told<Name> {
    const { name, help } = this.#told;
    const values: MetricValueWithName<Name>[] = [];
    this.#series.each((labels, observations) => values.push(...observations.told(name, labels)));
    // prom-client's types want an enum that does not exist at run time.
    return { name, help, type: "histogram", aggregator: "sum", values } as unknown as Awaited<Told<Name>>;
  }

  /** Called by prom-client's registry in place of `get`. */
  getForPromString(): Told<Name> {
    return this.get();
  }
}

type Told<Name extends string> = ReturnType<Histogram<Name>["get"]>;
