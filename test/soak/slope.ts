/** Does something grow? A straight line through what was measured at quiet points, and how sure its slope is. */

export interface Point {
  /** Hours since the life began. */
  readonly hours: number;
  readonly value: number;
}

export interface Slope {
  readonly points: number;
  readonly mean: number;
  readonly first: number;
  readonly last: number;
  /** Per hour. */
  readonly perHour: number;
  /** Standard error of `perHour`; 0 with two points or fewer, where nothing is known of it. */
  readonly error: number;
  /** From the first point to the last, in hours. */
  readonly span: number;
}

/** Least squares. */
export function slopeOf(points: readonly Point[]): Slope {
  const count = points.length;
  const mean = (of: (point: Point) => number) => points.reduce((sum, point) => sum + of(point), 0) / count;
  const [hours, value] = count === 0 ? [0, 0] : [mean((point) => point.hours), mean((point) => point.value)];
  const spread = points.reduce((sum, point) => sum + (point.hours - hours) ** 2, 0);
  const together = points.reduce((sum, point) => sum + (point.hours - hours) * (point.value - value), 0);
  const perHour = spread === 0 ? 0 : together / spread;
  const squares = points.reduce(
    (sum, point) => sum + (point.value - value - perHour * (point.hours - hours)) ** 2,
    0,
  );
  const error = count > 2 && spread > 0 ? Math.sqrt(squares / (count - 2) / spread) : 0;
  const first = points[0];
  const last = points.at(-1);
  return {
    points: count,
    mean: value,
    first: first?.value ?? 0,
    last: last?.value ?? 0,
    perHour,
    error,
    span: (last?.hours ?? 0) - (first?.hours ?? 0),
  };
}

/** Two-sided 95%, for few points. */
const T95 = [12.71, 12.71, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];
const LEAST_POINTS = 4;

/**
 * True when it grew beyond noise: the slope is above 0 with 97.5% certainty, and even the least slope that the points allow
 * makes more than `noise` over the time that was measured. Fewer than four points tell nothing.
 */
export function grows(points: readonly Point[], noise: number): boolean {
  if (points.length < LEAST_POINTS) return false;
  const { perHour, error, span } = slopeOf(points);
  const least = perHour - error * (T95[points.length - 2] ?? 2);
  return least > 0 && least * span > noise;
}
