import { ratio } from "../figures.ts";
import { measure } from "../measure.ts";
import { LIMITED_KEY } from "../snapshots.ts";
import { cpuOf, micros, type Bench, type Outcome } from "./part.ts";

const FREE = "no limits";
const LIMITED = "three limits";

/** CPU of a request whose key and project have limits of credit, and its key one of rate, beside one without. */
export async function limits({ contestants: { gapura }, quick, rounds, say }: Bench): Promise<Outcome> {
  const subject = { contestant: gapura, mode: "json" } as const;
  const measured = await measure(
    [
      { ...subject, label: FREE },
      { ...subject, label: LIMITED, key: LIMITED_KEY },
    ],
    { ...rounds, rounds: quick ? 4 : 15, width: 128 },
  );
  const base = cpuOf(measured, FREE);
  say(`three limits cost ${ratio(cpuOf(measured, LIMITED), base)} of none`);
  const rows = measured.map(({ label, cpuMicros, perSecond }) => [
    label,
    micros(cpuMicros),
    ratio(cpuMicros, base),
    perSecond.toFixed(0),
  ]);
  const columns = ["JSON 1 kB, 128 at once", "µs of CPU", "to none", "requests/s"];
  return { tables: [{ title: "Limits of keys and projects", columns, rows }] };
}
