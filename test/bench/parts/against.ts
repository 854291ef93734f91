import { median, percentile } from "../figures.ts";
import { measure, type Subject } from "../measure.ts";
import type { Mode } from "../payloads.ts";
import type { GapuraProcess } from "../world.ts";
import { chosen, micros, type Bench, type Outcome } from "./part.ts";

const SHOWN: readonly (readonly [string, Mode])[] = [
  ["Chat JSON, relayed", "json"],
  ["Messages JSON, relayed", "whole"],
  ["200 Chat events at once", "burst"],
  ["200 Chat events in one packet", "packed"],
];
/** Processes of the very same code differ by up to a tenth for as long as they live, so there are several of each. */
const PROCESSES = 3;
/** A machine's mood lasts for seconds: rounds are short, and those that follow one another are compared. */
const SWEEPS = 24;
const ROUND_MS = 600;

/**
 * This checkout beside another one: CPU of the same requests, in turns. What the change cost is the
 * median of the ratios of sweeps; in each sweep every process has one round, so that a busy machine disturbs all alike.
 */
export async function against(bench: Bench): Promise<Outcome> {
  const { world, contestants, quick, rounds, checkout, only, say } = bench;
  if (checkout === undefined) throw new Error("which checkout? npm run bench -- against DIR");
  const kinds = chosen(
    only,
    SHOWN.map(([, mode]) => mode),
  );
  const here = [contestants.gapura];
  while (here.length < PROCESSES) here.push(await world.gapura());
  const there: GapuraProcess[] = [];
  while (there.length < PROCESSES) there.push(await world.gapura({ checkout }));
  const rows: string[][] = [];
  for (const [label, mode] of SHOWN) {
    if (!kinds.includes(mode)) continue;
    const processes = here
      .flatMap((own, place) => [
        { isHere: true, contestant: own },
        { isHere: false, contestant: there[place] ?? own },
      ])
      .map((process) => ({ ...process, cpu: [] as number[] }));
    const subjects: Subject[] = processes.map(({ contestant }, place) => ({
      label: String(place),
      contestant,
      mode,
    }));
    // The first ones warm up.
    await measure(subjects, { ...rounds, rounds: 2 });
    const ratios: number[] = [];
    for (let sweep = 0; sweep < (quick ? 6 : SWEEPS); sweep += 1) {
      const from = sweep % subjects.length;
      const turned = [...subjects.slice(from), ...subjects.slice(0, from)];
      // Every other sweep goes backwards, so that none always follows the same one.
      const order = sweep % 2 === 0 ? turned : turned.toReversed();
      const sums = { here: 0, there: 0 };
      for (const one of await measure(order, { ...rounds, rounds: 1, ms: ROUND_MS })) {
        const process = processes[Number(one.label)];
        process?.cpu.push(one.cpuMicros);
        sums[process?.isHere === true ? "here" : "there"] += one.cpuMicros;
      }
      ratios.push(sums.here / sums.there);
    }
    say(`${label}: ${median(ratios).toFixed(3)} ×`);
    const ofEach = (isHere: boolean) =>
      processes
        .filter((process) => process.isHere === isHere)
        .map(({ cpu }) => micros(median(cpu)))
        .join(", ");
    rows.push([
      label,
      ofEach(false),
      ofEach(true),
      ...[0.5, 0.25, 0.75].map((share) => `${percentile(ratios, share).toFixed(3)} ×`),
    ]);
  }
  const columns = [
    "CPU of a request, by process",
    "µs there",
    "µs here",
    "here to there",
    "lower quarter",
    "upper quarter",
  ];
  return { tables: [{ title: `This checkout beside ${checkout}`, columns, rows }] };
}
