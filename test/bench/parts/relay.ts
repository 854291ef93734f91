import { ratio } from "../figures.ts";
import { measure, type Rounds } from "../measure.ts";
import type { Mode } from "../payloads.ts";
import type { Chart } from "../svg.ts";
import { cpuOf, micros, subjects, type Bench, type Outcome } from "./part.ts";

/**
 * Rounds beyond the usual. JSON is what a noisy machine disturbs most. A paced stream takes 0.4 s: enough of them that
 * the steps of 10 ms in which Linux tells times are 1% of a round.
 */
const finer: Partial<Record<Mode, Partial<Rounds>>> = {
  json: { rounds: 9 },
  paced: { rounds: 6, ms: 3_000, width: 32 },
};

/**
 * With the usual number of requests at once Gapura's core is idle half of the time, as each request waits twice for
 * Redis' disk, and a core that falls asleep in between costs every server more of its time: the bare relay, which waits
 * for nothing, never does. So JSON is measured with twice as many as well.
 */
const TWICE_AS_MANY = 128;

/** CPU of a relayed request beside nginx and the bare relay. */
export async function relay({ contestants, quick, rounds, say }: Bench): Promise<Outcome> {
  const shown: readonly (readonly [Mode, string, number, Partial<Rounds>?])[] = [
    ["json", "JSON 1 kB", 2],
    ["json", `JSON 1 kB, ${TWICE_AS_MANY} at once`, 2, { width: TWICE_AS_MANY }],
    ["burst", "200 events at once", 1.15],
    ["paced", "200 events 2 ms apart", 1.15],
    ["packed", "200 events in one packet", 1.15],
    ["messages", "200 Messages events at once", 1.15],
  ];
  const rows: string[][] = [];
  const charts: Record<string, Chart> = {};
  for (const [mode, title, target, own] of shown) {
    if (quick && (mode === "packed" || mode === "messages")) continue;
    const measured = await measure(subjects(contestants, mode), {
      ...rounds,
      ...(quick ? {} : finer[mode]),
      ...own,
    });
    const base = cpuOf(measured, "bare relay");
    say(
      `${title}: ${micros(cpuOf(measured, "Gapura"))} µs, ${ratio(cpuOf(measured, "Gapura"), base)} the bare relay`,
    );
    for (const { label, cpuMicros, perSecond } of measured) {
      rows.push([title, label, micros(cpuMicros), ratio(cpuMicros, base), perSecond.toFixed(0)]);
    }
    // The usual ones are drawn.
    if (own !== undefined) continue;
    charts[`relay-${mode}`] = {
      title,
      unit: "µs of CPU per request",
      bars: measured.map(({ label, cpuMicros }) => ({ label, value: cpuMicros, muted: label !== "Gapura" })),
      limit: { label: `goal: ${target} × bare`, value: target * base },
    };
  }
  const columns = ["CPU of a relayed request", "", "µs", "bare relay", "requests/s"];
  return { tables: [{ title: "Relay", columns, rows }], charts };
}
