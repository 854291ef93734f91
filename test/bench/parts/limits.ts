import { ratio, type Table } from "../figures.ts";
import { measure, type Rounds } from "../measure.ts";
import { LIMITED_KEY } from "../snapshots.ts";
import { cpuOf, micros, type Bench, type Outcome } from "./part.ts";

const FREE = "no limits";
const LIMITED = "three limits";

/**
 * CPU of a request whose key and project have limits of credit, and its key one of rate, beside one without: at the same
 * rate, where both cost what they cost; and in a closed loop, where the longer call of Redis, which shares its core with the
 * load, also leaves the process fewer requests for each turn of its event loop.
 */
export async function limits({ contestants: { gapura }, quick, rounds, say }: Bench): Promise<Outcome> {
  const subject = { contestant: gapura, mode: "json" } as const;
  const subjects = [
    { ...subject, label: FREE },
    { ...subject, label: LIMITED, key: LIMITED_KEY },
  ];
  const ways: readonly (readonly [string, Rounds])[] = [
    ["1,000 a second", { ...rounds, perSecond: 1_000 }],
    ["128 at once", { ...rounds, width: 128 }],
  ];
  const tables: Table[] = [];
  for (const [way, how] of ways) {
    const measured = await measure(subjects, { ...how, rounds: quick ? 4 : 15 });
    const base = cpuOf(measured, FREE);
    say(`${way}: three limits cost ${ratio(cpuOf(measured, LIMITED), base)} of none`);
    tables.push({
      title: `Limits of keys and projects, ${way}`,
      columns: ["JSON 1 kB", "µs of CPU", "to none", "requests/s"],
      rows: measured.map(({ label, cpuMicros, perSecond }) => [
        label,
        micros(cpuMicros),
        ratio(cpuMicros, base),
        perSecond.toFixed(0),
      ]),
    });
  }
  return { tables };
}
