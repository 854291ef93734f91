/**
 * Stacked bars over time. Drawn as one path for each series, so that ten thousand hours cost no more than ten days; the
 * table beneath a chart holds the exact figures, and is what screen readers get.
 */
import { useState } from "preact/hooks";
import { useStore } from "../lib/store.ts";
import { formatTick, language } from "../texts/texts.ts";

interface Series {
  readonly name: string;
  /** One value for each moment. */
  readonly values: readonly number[];
}

interface ChartProps {
  readonly name: string;
  /** The label of each bar on the axis. */
  readonly moments: readonly string[];
  readonly series: readonly Series[];
  /** Formats the exact figure that is shown when the pointer is on a bar. */
  readonly format: (value: number) => string;
}

export const MOST_SERIES = 8;
const LINES = 4;

export function Chart({ name, moments, series, format }: ChartProps) {
  const spoken = useStore(language);
  const [pointed, setPointed] = useState<number | null>(null);
  const totals = moments.map((_, index) =>
    series.reduce((total, { values }) => total + (values[index] ?? 0), 0),
  );
  const top = niceCeiling(Math.max(...totals, 0));
  const ticks = Array.from({ length: LINES + 1 }, (_, index) => (top * index) / LINES);
  const labelled = labelledMoments(moments.length);
  const percent = (part: number, whole: number) => `${whole === 0 ? 0 : (100 * part) / whole}%`;
  return (
    <figure class="chart card" aria-label={name}>
      <figcaption>{name}</figcaption>
      <div
        class="plot"
        aria-hidden="true"
        onPointerMove={(event) => {
          const { left, width } = event.currentTarget.getBoundingClientRect();
          const index = Math.floor(((event.clientX - left) / width) * moments.length);
          setPointed(index >= 0 && index < moments.length ? index : null);
        }}
        onPointerLeave={() => setPointed(null)}
      >
        {ticks.map((tick) => (
          <div key={tick}>
            <span class="tick" style={{ top: percent(top - tick, top) }}>
              {formatTick(tick, spoken)}
            </span>
            <span class="grid-line" style={{ top: percent(top - tick, top) }} />
          </div>
        ))}
        <svg viewBox={`0 0 ${moments.length} 1`} preserveAspectRatio="none">
          {stackedPaths(series, moments.length, top).map((path, index) => (
            <path key={series[index]?.name} class={`series-${index % MOST_SERIES}`} d={path} />
          ))}
        </svg>
        {labelled.map((index, place) => (
          <span
            key={index}
            class={place % 2 === 0 ? "moment" : "moment minor"}
            style={{ left: percent(index + 0.5, moments.length) }}
          >
            {moments[index]?.replace(" 00:00", "")}
          </span>
        ))}
        {pointed !== null && (
          <div
            class="plot-tip"
            style={
              pointed < moments.length / 2
                ? { left: percent(pointed + 1, moments.length) }
                : { right: percent(moments.length - pointed, moments.length) }
            }
          >
            <b>{moments[pointed]}</b>
            {series.map(({ name: title, values }) => (
              <div key={title}>
                {title}: {format(values[pointed] ?? 0)}
              </div>
            ))}
          </div>
        )}
      </div>
      {series.length > 1 && (
        <ul class="legend">
          {series.map(({ name: title }, index) => (
            <li key={title}>
              <span class={`swatch series-${index % MOST_SERIES}`} />
              {title}
            </li>
          ))}
        </ul>
      )}
    </figure>
  );
}

/** Returns the top of the axis, at which four lines have round labels and the highest bar fills most of the height. */
function niceCeiling(value: number): number {
  if (value <= 0) return LINES;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10].find((factor) => factor * power >= value) ?? 10) * power;
}

/** Returns about six moments, evenly spread. */
function labelledMoments(count: number): number[] {
  const step = Math.max(1, Math.ceil(count / 6));
  return Array.from({ length: Math.ceil(count / step) }, (_, index) => index * step);
}

function stackedPaths(series: readonly Series[], count: number, top: number): string[] {
  const base = Array.from({ length: count }, () => 0);
  const gap = count > 200 ? 0 : 0.12;
  return series.map(({ values }) => {
    let path = "";
    for (let index = 0; index < count; index += 1) {
      const height = (values[index] ?? 0) / top;
      if (height <= 0) continue;
      const bottom = 1 - (base[index] ?? 0);
      base[index] = (base[index] ?? 0) + height;
      path += `M${index + gap} ${bottom}V${bottom - height}H${index + 1 - gap}V${bottom}Z`;
    }
    return path;
  });
}
