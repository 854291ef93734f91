/** Bar charts as SVG text, without a library: a few bars with their values. */

export interface Bar {
  readonly label: string;
  readonly value: number;
}

export interface Chart {
  readonly title: string;
  readonly unit: string;
  readonly bars: readonly Bar[];
  /** A line that the bars should stay below, with its meaning. */
  readonly limit?: { readonly label: string; readonly value: number };
}

const WIDTH = 640;
const LEFT = 170;
const RIGHT = 90;
const BAR = 26;
const GAP = 10;
const TOP = 44;

export function barChart({ title, unit, bars, limit }: Chart): string {
  const most = Math.max(1e-9, limit?.value ?? 0, ...bars.map(({ value }) => value));
  const length = (value: number) => Math.max(1, Math.round((value / most) * (WIDTH - LEFT - RIGHT)));
  const bottom = TOP + bars.length * (BAR + GAP);
  const height = bottom + (limit === undefined ? 8 : 26);
  const rows = bars.map(({ label, value }, row) => {
    const y = TOP + row * (BAR + GAP);
    const middle = y + BAR / 2 + 5;
    return [
      `<text x="${LEFT - 8}" y="${middle}" text-anchor="end">${escaped(label)}</text>`,
      `<rect x="${LEFT}" y="${y}" width="${length(value)}" height="${BAR}" fill="#3b6ea5"/>`,
      `<text x="${LEFT + length(value) + 6}" y="${middle}">${shown(value)}</text>`,
    ].join("\n");
  });
  const line =
    limit === undefined
      ? []
      : [
          `<line x1="${LEFT + length(limit.value)}" x2="${LEFT + length(limit.value)}" y1="${TOP - 6}" y2="${bottom}" stroke="#b3261e" stroke-dasharray="5 4"/>`,
          `<text x="${LEFT + length(limit.value)}" y="${bottom + 16}" text-anchor="middle" fill="#b3261e">${escaped(limit.label)}</text>`,
        ];
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="14">`,
    `<rect width="${WIDTH}" height="${height}" fill="#ffffff"/>`,
    `<text x="12" y="24" font-weight="bold">${escaped(`${title} (${unit})`)}</text>`,
    ...rows,
    ...line,
    "</svg>",
    "",
  ].join("\n");
}

const shown = (value: number) => (value >= 100 ? value.toFixed(0) : value.toPrecision(3));

const escaped = (text: string) =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
