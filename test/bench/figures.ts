/** Numbers of repeated measurements, and tables of them. */

/** The middle of the values; NaN of none. */
export const median = (values: readonly number[]): number => percentile(values, 0.5);

/** The value below which this share of the values lies, between neighbours by proportion; NaN of none. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((one, other) => one - other);
  const at = (sorted.length - 1) * share;
  const low = sorted[Math.floor(at)] ?? Number.NaN;
  const high = sorted[Math.ceil(at)] ?? Number.NaN;
  return low + (high - low) * (at - Math.floor(at));
}

export interface Table {
  readonly title: string;
  /** The first column is text, the others are numbers. */
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/** A Markdown table that can also be read in a terminal. */
export function renderTable({ title, columns, rows }: Table): string {
  const widths = columns.map((name, column) =>
    Math.max(name.length, ...rows.map((row) => (row[column] ?? "").length)),
  );
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0))).join(" | ")} |`;
  const rule = `|${widths.map((width, column) => (column === 0 ? "-".repeat(width + 2) : `${"-".repeat(width + 1)}:`)).join("|")}|`;
  return [`**${title}**`, "", line(columns), rule, ...rows.map(line)].join("\n");
}

/** `1.94 ×` */
export const ratio = (value: number, base: number): string => `${(value / base).toFixed(2)} ×`;
