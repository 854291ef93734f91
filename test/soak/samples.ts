/** What programs held at quiet points, judged for each life: nothing may grow beyond noise. */
import type { Sample } from "./probe.ts";
import { grows, slopeOf, type Point } from "./slope.ts";

const MB = 1024 * 1024;
/** While a life is young it fills its caches and pools. */
const WARM_MS = 100_000;

interface Measure {
  readonly name: string;
  readonly of: (sample: Sample) => number;
  /** By how much it may differ without meaning anything: pools that open and close, caches, V8's own rooms. */
  readonly noise: number;
}

const measures: readonly Measure[] = [
  { name: "heap MB", of: ({ heap }) => heap / MB, noise: 8 },
  { name: "resident MB", of: ({ resident }) => resident / MB, noise: 40 },
  { name: "descriptors", of: ({ descriptors }) => descriptors, noise: 16 },
  { name: "timers", of: ({ timers }) => timers, noise: 16 },
  { name: "handles", of: ({ handles }) => handles, noise: 16 },
];

/** The warm part of each life. */
function* series(samples: readonly Sample[]) {
  for (const [life, ofLife] of Map.groupBy(samples, ({ life: whose }) => whose)) {
    const warm = ofLife.filter(({ at }) => at - life.bornAt >= WARM_MS);
    for (const { name, of, noise } of measures) {
      const points = warm.map((sample): Point => ({
        hours: (sample.at - life.bornAt) / 3_600_000,
        value: of(sample),
      }));
      yield { life, name, noise, points };
    }
  }
}

export function judgeSamples(samples: readonly Sample[]): string[] {
  return Array.from(series(samples))
    .filter(({ points, noise }) => grows(points, noise))
    .map(({ life, name, points }) => `${name} of ${life.name} grow: ${slopeText(points)}`);
}

/** One line for each measure of each life of which enough is known. */
export const tellSamples = (samples: readonly Sample[]): string[] =>
  Array.from(series(samples))
    .filter(({ points }) => points.length >= 3)
    .map(
      ({ life, name, points }) =>
        `${life.name} since ${(life.bornAt / 1000).toFixed(0)} s, ${name}: ${slopeText(points)}`,
    );

function slopeText(points: readonly Point[]): string {
  const { points: count, mean, first, last, perHour, error, span } = slopeOf(points);
  const text = (value: number) => value.toFixed(1);
  return `${text(first)} to ${text(last)} (mean ${text(mean)}) in ${text(span * 60)} min, slope ${text(perHour)} ± ${text(error)} an hour, ${count} points`;
}
