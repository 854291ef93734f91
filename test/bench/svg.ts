/** Charts as SVG text, without a library: a few bars with their values, or one line over time. */

export interface Bar {
  readonly label: string;
  readonly value: number;
  /** Drawn paler: what is only there for comparison. */
  readonly muted?: boolean;
}

export interface Chart {
  readonly title: string;
  readonly unit: string;
  readonly bars: readonly Bar[];
  /** A line that the bars should stay below, with its meaning. */
  readonly limit?: { readonly label: string; readonly value: number };
}

const WIDTH = 640;
/** Of a character of the labels, on average. */
const CHARACTER = 7.4;
const RIGHT = 90;
const BAR = 26;
const GAP = 10;
const TOP = 44;

export function barChart({ title, unit, bars, limit }: Chart): string {
  const left = Math.ceil(24 + Math.max(...bars.map(({ label }) => label.length)) * CHARACTER);
  const most = Math.max(1e-9, limit?.value ?? 0, ...bars.map(({ value }) => value));
  const length = (value: number) => Math.max(1, Math.round((value / most) * (WIDTH - left - RIGHT)));
  const bottom = TOP + bars.length * (BAR + GAP);
  const height = bottom + (limit === undefined ? 8 : 26);
  const rows = bars.map(({ label, value, muted = false }, row) => {
    const y = TOP + row * (BAR + GAP);
    const middle = y + BAR / 2 + 5;
    return [
      `<text x="${left - 8}" y="${middle}" text-anchor="end">${escaped(label)}</text>`,
      `<rect x="${left}" y="${y}" width="${length(value)}" height="${BAR}" fill="${muted ? "#b4c3d3" : "#3b6ea5"}"/>`,
      `<text x="${left + length(value) + 6}" y="${middle}" stroke="#ffffff" stroke-width="4" paint-order="stroke">${shown(value)}</text>`,
    ].join("\n");
  });
  const line =
    limit === undefined
      ? []
      : [
          `<line x1="${left + length(limit.value)}" x2="${left + length(limit.value)}" y1="${TOP - 6}" y2="${bottom}" stroke="#b3261e" stroke-dasharray="5 4"/>`,
          `<text x="${left + length(limit.value)}" y="${bottom + 16}" text-anchor="middle" fill="#b3261e">${escaped(limit.label)}</text>`,
        ];
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="14">`,
    `<rect width="${WIDTH}" height="${height}" fill="#ffffff"/>`,
    `<text x="12" y="24" font-weight="bold">${escaped(`${title} (${unit})`)}</text>`,
    ...line,
    ...rows,
    "</svg>",
    "",
  ].join("\n");
}

export interface TimeLine {
  readonly title: string;
  readonly unit: string;
  /** At these seconds, in order. */
  readonly points: readonly { readonly at: number; readonly value: number }[];
  /** What happened when. */
  readonly marks: readonly { readonly at: number; readonly label: string }[];
}

const PLOT = { left: 56, right: 16, top: 44, bottom: 36, height: 240 };

/** A value over seconds; its axis begins at zero. */
export function timeLine({ title, unit, points, marks }: TimeLine): string {
  const { left, right, top, bottom, height } = PLOT;
  const step = niceStep(Math.max(...points.map(({ value }) => value)));
  const most = step * Math.ceil(Math.max(...points.map(({ value }) => value)) / step);
  const last = Math.max(1, ...points.map(({ at }) => at));
  const x = (at: number) => (left + (at / last) * (WIDTH - left - right)).toFixed(1);
  const y = (value: number) => (top + (1 - value / most) * (height - top - bottom)).toFixed(1);
  const levels = Array.from({ length: Math.round(most / step) + 1 }, (_, at) => at * step);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="14">`,
    `<rect width="${WIDTH}" height="${height}" fill="#ffffff"/>`,
    `<text x="12" y="24" font-weight="bold">${escaped(`${title} (${unit})`)}</text>`,
    ...levels.flatMap((level) => [
      `<line x1="${left}" x2="${WIDTH - right}" y1="${y(level)}" y2="${y(level)}" stroke="#dde3ea"/>`,
      `<text x="${left - 6}" y="${Number(y(level)) + 5}" text-anchor="end" font-size="12">${level}</text>`,
    ]),
    ...marks.flatMap(({ at, label }) => [
      `<line x1="${x(at)}" x2="${x(at)}" y1="${top}" y2="${height - bottom}" stroke="#b4c3d3" stroke-dasharray="3 4"/>`,
      `<text x="${x(at)}" y="${height - 14}" font-size="12" text-anchor="${at > last / 2 ? "end" : "start"}">${escaped(label)}</text>`,
    ]),
    `<polyline fill="none" stroke="#3b6ea5" stroke-width="2" points="${points.map(({ at, value }) => `${x(at)},${y(value)}`).join(" ")}"/>`,
    "</svg>",
    "",
  ].join("\n");
}

/** 1, 2 or 5 times a power of ten, so that there are at most six levels. */
function niceStep(most: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1e-9, most)));
  return [0.2, 0.5, 1, 2].map((times) => times * power).find((step) => most / step <= 6) ?? 2 * power;
}

const shown = (value: number) => value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);

const escaped = (text: string) =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
