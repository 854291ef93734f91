/** What the tables of good and bad objects share. */
import type { Kind } from "../../../operator/api/kinds.ts";

export interface Row {
  readonly title: string;
  readonly kind: Kind;
  readonly spec: unknown;
  /**
   * good: accepted by both. refused: by the API server, and by the compiler with the path.
   * condition: stored by the API server, then `Accepted=False` with the path.
   */
  readonly verdict: "good" | "refused" | "condition";
  /** Where the compiler finds the fault. */
  readonly path?: string;
  /** The API server says something else than "Invalid value" about it; for CEL rules, our own words. */
  readonly says?: RegExp;
}

/** A row but for its kind, which its table says. */
export type RowOfKind = Omit<Row, "kind">;

export const ofKind = (kind: Kind, rows: readonly RowOfKind[]): readonly Row[] =>
  rows.map((row) => ({ kind, ...row }));

/** A reference to a Secret's key. */
export const secret = { secretKeyRef: { name: "s", key: "k" } };

export const times = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, index) => make(index));
