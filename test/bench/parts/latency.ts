import { measure, type Subject } from "../measure.ts";
import type { Contestant } from "../world.ts";
import type { Chart } from "../svg.ts";
import { millis, subjects, type Bench, type Outcome } from "./part.ts";

/** First byte added to a stream, and p50 added to a whole answer (design.md §8). */
const GOAL_MS = { packed: 0.5, json: 0.8 } as const;

/**
 * What a client feels that sends one request at a time, beside asking the upstream itself. Gapura twice: a hold waits
 * for Redis, and Redis for the disk, so the second one, whose Redis does not sync, is what the disk has no part in.
 */
export async function latency({ world, contestants, rounds, say }: Bench): Promise<Outcome> {
  const direct: Contestant = {
    name: "bare relay",
    port: world.upstreamPort,
    pid: process.pid,
    path: (mode) => `/${mode}`,
  };
  const unsynced = await world.gapura({ redisSynced: false });
  const tables = [];
  const charts: Record<string, Chart> = {};
  for (const [mode, title] of [
    ["json", "JSON 1 kB"],
    ["packed", "200 events in one packet"],
  ] as const) {
    const all: Subject[] = [
      { label: "direct", contestant: direct, mode },
      ...subjects(contestants, mode),
      { label: "Gapura, Redis unsynced", contestant: unsynced, mode },
    ];
    const measured = await measure(all, { ...rounds, width: 1 });
    const [base, ...proxies] = measured;
    if (base === undefined) continue;
    const added = (value: number, of: number) => `+${millis(value - of)}`;
    tables.push({
      title: `One request at a time, ${title}: milliseconds, and what is added to asking the upstream directly`,
      columns: ["", "first byte p50", "added", "whole p50", "added", "whole p99", "added"],
      rows: measured.map((one) => [
        one.label,
        millis(one.firstByteP50Ms),
        added(one.firstByteP50Ms, base.firstByteP50Ms),
        millis(one.wholeP50Ms),
        added(one.wholeP50Ms, base.wholeP50Ms),
        millis(one.wholeP99Ms),
        added(one.wholeP99Ms, base.wholeP99Ms),
      ]),
    });
    const bars = proxies.map(({ label, firstByteP50Ms }) => ({
      label,
      value: firstByteP50Ms - base.firstByteP50Ms,
      muted: label !== "Gapura",
    }));
    for (const { label, value } of bars)
      say(`${title}: ${label} adds ${millis(value)} ms to the first byte (p50)`);
    charts[`latency-${mode}`] = {
      title: `${title}: added to the first byte, p50`,
      unit: "ms",
      bars,
      limit: { label: `goal: ${GOAL_MS[mode]} ms`, value: GOAL_MS[mode] },
    };
  }
  await unsynced.stop();
  return { tables, charts };
}
