import { median, percentile } from "../figures.ts";
import { measure, type Subject } from "../measure.ts";
import type { Mode } from "../payloads.ts";
import { micros, type Bench, type Outcome } from "./part.ts";

const SHOWN: readonly (readonly [string, Mode])[] = [
  ["Chat JSON, relayed", "json"],
  ["Messages JSON, relayed", "whole"],
  ["200 Chat events at once", "burst"],
];
/** Pairs of rounds: a machine's mood lasts longer than a round, so neighbours are compared, and the middle one counts. */
const PAIRS = 15;
const [HERE, THERE] = ["here", "there"];

/**
 * This checkout beside another one: CPU of the same requests, in turns. What the change cost is the
 * median of the ratios of neighbouring rounds, in which a busy machine disturbs both alike.
 */
export async function against({ world, contestants, quick, rounds, checkout, say }: Bench): Promise<Outcome> {
  if (checkout === undefined) throw new Error("which checkout? npm run bench -- against DIR");
  const other = await world.gapura({ checkout });
  const rows: string[][] = [];
  for (const [label, mode] of SHOWN) {
    const subjects: Subject[] = [
      { label: THERE, contestant: other, mode },
      { label: HERE, contestant: contestants.gapura, mode },
    ];
    // The first ones warm up.
    await measure(subjects, { ...rounds, rounds: 2 });
    const ratios: number[] = [];
    const cpu: Record<string, number[]> = { [THERE]: [], [HERE]: [] };
    for (let pair = 0; pair < (quick ? 4 : PAIRS); pair += 1) {
      // The order turns with every pair.
      const measured = await measure(pair % 2 === 0 ? subjects : subjects.toReversed(), {
        ...rounds,
        rounds: 1,
      });
      for (const one of measured) cpu[one.label]?.push(one.cpuMicros);
      ratios.push((cpu[HERE]?.at(-1) ?? Number.NaN) / (cpu[THERE]?.at(-1) ?? Number.NaN));
    }
    say(`${label}: ${median(ratios).toFixed(3)} ×`);
    rows.push([
      label,
      micros(median(cpu[THERE] ?? [])),
      micros(median(cpu[HERE] ?? [])),
      ...[0.5, 0.25, 0.75].map((share) => `${percentile(ratios, share).toFixed(3)} ×`),
    ]);
  }
  const columns = [
    "CPU of a request",
    "µs there",
    "µs here",
    "here to there",
    "lower quarter",
    "upper quarter",
  ];
  return { tables: [{ title: `This checkout beside ${checkout}`, columns, rows }] };
}
