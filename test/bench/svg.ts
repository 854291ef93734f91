/** Bar charts as SVG text, without a library: a few bars with their values. */

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

const shown = (value: number) => value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);

const escaped = (text: string) =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
