/**
 * Metrics that are counted with for every request. prom-client hashes and checks a series' labels at each count, even
 * of a series that it handed out before; here a count is an addition, and prom-client is told when the metric is read.
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

/** Where one series stands. */
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

  /** Ends those of which it is so, and returns their labels. Whoever keeps one counts for nobody. */
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
 * Credits, by series that count micro-credits: a sum of many fractions of credits would show what nobody was charged, such as
 * 0.052677999999999996.
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

/** The trace of one observation, for OpenMetrics. */
export interface Exemplar {
  readonly traceId: string;
  /** Unix seconds. */
  readonly at: number;
}

/** What was observed of one series. */
export class Observations {
  /** Ascending. */
  readonly #bounds: readonly number[];
  /** How many were at most a bound and above the one before it; last, those above all bounds. */
  readonly #counts: number[];
  /** The newest of each bucket; null: none was traced. */
  #exemplars: (({ readonly value: number } & Exemplar) | undefined)[] | null = null;
  #sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = Array.from({ length: bounds.length + 1 }, () => 0);
  }

  /** @param exemplar of a request whose trace is kept. */
  observe(value: number, exemplar: Exemplar | null = null): void {
    const bounds = this.#bounds;
    let at = 0;
    while (at < bounds.length && value > (bounds[at] as number)) at += 1;
    this.#counts[at] = (this.#counts[at] as number) + 1;
    this.#sum += value;
    if (exemplar !== null) (this.#exemplars ??= [])[at] = { value, ...exemplar };
  }

  /** The values of a histogram's series, as prom-client tells them. */
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

/** Knows what was observed through its series only: prom-client's own ways to observe are closed. */
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
    // prom-client's types name an enumeration that is not there at run time.
    return { name, help, type: "histogram", aggregator: "sum", values } as unknown as Awaited<Told<Name>>;
  }

  /** What prom-client's registry asks of a histogram in place of `get`. */
  getForPromString(): Told<Name> {
    return this.get();
  }
}

type Told<Name extends string> = ReturnType<Histogram<Name>["get"]>;
