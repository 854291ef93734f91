/**
 * Metrics that are counted with for every request. prom-client hashes and checks a series' labels at each count, even
 * of a series that it handed out before; here a count is an addition, and prom-client is told when the metric is read.
 */
import { Counter, Gauge, type CounterConfiguration, type GaugeConfiguration } from "prom-client";

type Labels<Name extends string> = Record<Name, string>;

/** Where one series stands. */
export interface Tally {
  value: number;
}

/** The series of one metric, by their labels. */
class Series<Name extends string> {
  readonly #tallies = new Map<string, { readonly labels: Labels<Name>; readonly tally: Tally }>();

  of(labels: Labels<Name>): Tally {
    const key = JSON.stringify(labels);
    const known = this.#tallies.get(key);
    if (known !== undefined) return known.tally;
    const tally = { value: 0 };
    this.#tallies.set(key, { labels, tally });
    return tally;
  }

  each(tell: (labels: Labels<Name>, tally: Tally) => void): void {
    for (const { labels, tally } of this.#tallies.values()) tell(labels, tally);
  }
}

export class TallyCounter<Name extends string> extends Counter<Name> {
  readonly #series = new Series<Name>();

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

  /** A series to keep: what is added to its value is counted. Always the same one for the same labels. */
  series(labels: Labels<Name>): Tally {
    return this.#series.of(labels);
  }
}

export class TallyGauge<Name extends string> extends Gauge<Name> {
  readonly #series = new Series<Name>();

  constructor(configuration: GaugeConfiguration<Name>) {
    super({
      ...configuration,
      collect: () => this.#series.each((labels, tally) => this.set(labels, tally.value)),
    });
  }

  /** A series to keep: its value is what the gauge shows. Always the same one for the same labels. */
  series(labels: Labels<Name>): Tally {
    return this.#series.of(labels);
  }
}
