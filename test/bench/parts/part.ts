/** What the parts of the bench share: whom they measure, how long, and how they write numbers. */
import { median, type Table } from "../figures.ts";
import type { Measured, Rounds, Subject } from "../measure.ts";
import type { Mode } from "../payloads.ts";
import type { Chart } from "../svg.ts";
import type { Contestant, GapuraProcess, World } from "../world.ts";

export interface Contestants {
  readonly nginx: Contestant | null;
  readonly bare: Contestant;
  readonly gapura: GapuraProcess;
}

export interface Bench {
  readonly world: World;
  readonly contestants: Contestants;
  /** A first look: shorter rounds, fewer streams. */
  readonly quick: boolean;
  /** Enough requests at once to keep one core busy. */
  readonly rounds: Rounds;
  /** The folder of another checkout, to compare with. */
  readonly checkout?: string | undefined;
  /** Kinds of answers to compare, by the names in payloads.ts; none: all. */
  readonly only: readonly string[];
  /** Tells how far it is, on standard error. */
  readonly say: (line: string) => void;
}

export interface Outcome {
  readonly tables: readonly Table[];
  /** By the name of their file. */
  readonly charts?: Readonly<Record<string, Chart>>;
}

export type Part = (bench: Bench) => Promise<Outcome>;

export const roundsOf = (quick: boolean): Rounds =>
  quick ? { rounds: 1, ms: 800, width: 64 } : { rounds: 3, ms: 1_500, width: 64 };

/** The kinds that were named; none: all. @throws Error when one is not known. */
export function chosen<Kind extends string>(
  given: readonly string[],
  known: readonly Kind[],
): readonly Kind[] {
  const unknown = given.find((name) => !known.some((kind) => kind === name));
  if (unknown !== undefined) throw new Error(`there is no kind ${unknown}: ${known.join(", ")}`);
  return given.length === 0 ? known : known.filter((kind) => given.includes(kind));
}

export const micros = (value: number) => value.toFixed(value < 100 ? 1 : 0);
export const millis = (value: number) => value.toFixed(2);
export const mebibytes = (bytes: number) => (bytes / 1024 / 1024).toFixed(0);

export function subjects({ nginx, bare, gapura }: Contestants, mode: Mode): Subject[] {
  return [nginx, bare, gapura].flatMap((contestant) =>
    contestant === null ? [] : [{ label: contestant.name, contestant, mode }],
  );
}

/** NaN when nothing of that name was measured. */
export function cpuOf(measured: readonly Measured[], label: string): number {
  return measured.find((one) => one.label === label)?.cpuMicros ?? Number.NaN;
}

/** Median and largest of some milliseconds, for two columns. */
export const spread = (values: readonly number[]): [string, string] => [
  median(values).toFixed(0),
  Math.max(...values).toFixed(0),
];
