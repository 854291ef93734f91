/**
 * Decimal numbers as texts, exact to the last digit, as the API writes credits: a float would lose micro-credits.
 * Only widths of bars and heights of charts are floats.
 */
interface Scaled {
  readonly units: bigint;
  /** Digits after the point. */
  readonly scale: number;
}

/** @throws Error for a text that is no decimal number. */
function parse(text: string): Scaled {
  const [, sign, whole = "", fraction = ""] = /^(-?)(\d+)(?:\.(\d+))?$/.exec(text) ?? [];
  if (sign === undefined) throw new Error(`not a decimal number: ${text}`);
  return { units: BigInt(sign + whole + fraction), scale: fraction.length };
}

const atScale = ({ units, scale }: Scaled, wanted: number): bigint => units * 10n ** BigInt(wanted - scale);

function write(units: bigint, scale: number): string {
  const digits = (units < 0n ? -units : units).toString().padStart(scale + 1, "0");
  const whole = digits.slice(0, digits.length - scale);
  const fraction = digits.slice(digits.length - scale).replace(/0+$/, "");
  return `${units < 0n ? "-" : ""}${whole}${fraction === "" ? "" : `.${fraction}`}`;
}

export function sum(texts: readonly string[]): string {
  const parsed = texts.map(parse);
  const scale = Math.max(0, ...parsed.map((one) => one.scale));
  return write(
    parsed.reduce((total, one) => total + atScale(one, scale), 0n),
    scale,
  );
}

export const subtract = (from: string, what: string): string =>
  sum([from, what.startsWith("-") ? what.slice(1) : `-${what}`]);

/** Negative, zero or positive, as `sort` wants it. */
export function compare(one: string, other: string): number {
  const difference = subtract(one, other);
  if (difference.startsWith("-")) return -1;
  return difference === "0" ? 0 : 1;
}

export const isPositive = (text: string): boolean => compare(text, "0") > 0;

/** 1 credit is 100 rupiah. */
export function rupiahOf(credits: string): string {
  const { units, scale } = parse(credits);
  return write(units * 100n, scale);
}

/** Divides, and rounds halves away from zero. */
export function divide(text: string, by: number, scale: number): string {
  const parsed = parse(text);
  const most = Math.max(scale, parsed.scale);
  const divisor = BigInt(by) * 10n ** BigInt(most - scale);
  const units = atScale(parsed, most);
  const half = units < 0n ? -divisor / 2n : divisor / 2n;
  return write((units + half) / divisor, scale);
}

/** Returns a float, for drawing and forecasts only. */
export const approximate = (text: string): number => Number(text);

export interface Separators {
  readonly group: string;
  readonly decimal: string;
}

/** Formats all digits: `1,234.567891`. */
export function formatDecimal(text: string, { group, decimal }: Separators): string {
  const [whole = "", fraction] = text.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, group);
  return fraction === undefined ? grouped : `${grouped}${decimal}${fraction}`;
}
