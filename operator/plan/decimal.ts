/** Exact decimal arithmetic on texts such as `0.30` and `-12.5`. */

interface Decimal {
  readonly digits: bigint;
  /** Number of digits after the point. */
  readonly scale: number;
}

function parse(text: string): Decimal {
  const point = text.indexOf(".");
  return point < 0
    ? { digits: BigInt(text), scale: 0 }
    : { digits: BigInt(text.slice(0, point) + text.slice(point + 1)), scale: text.length - point - 1 };
}

/** The shortest text of the number: no trailing zeros, no bare point. */
function format({ digits, scale }: Decimal): string {
  const negative = digits < 0n;
  const padded = (negative ? -digits : digits).toString().padStart(scale + 1, "0");
  const whole = padded.slice(0, padded.length - scale);
  const fraction = padded.slice(padded.length - scale).replace(/0+$/, "");
  return `${negative ? "-" : ""}${whole}${fraction === "" ? "" : `.${fraction}`}`;
}

/** Returns the exact product. */
export function multiply(one: string, other: string): string {
  const a = parse(one);
  const b = parse(other);
  return format({ digits: a.digits * b.digits, scale: a.scale + b.scale });
}

/** Returns the number in millionths; it must have at most six decimals. */
export function micros(text: string): bigint {
  const { digits, scale } = parse(text);
  return digits * 10n ** BigInt(6 - scale);
}
