import { setTimeout as sleep } from "node:timers/promises";
import { startCollector } from "../../fakes/otlp-collector.ts";
import { median, percentile, type Table } from "../figures.ts";
import { sparseLoad } from "../load.ts";
import { requestFor, type Mode } from "../payloads.ts";
import { millis, subjects, type Bench, type Outcome } from "./part.ts";

interface Traffic {
  readonly title: string;
  readonly mode: Mode;
  readonly perSecond: number;
  /** What is told of an answer. */
  readonly told: "wholeMs" | "firstByteMs";
}

const TRAFFIC: readonly Traffic[] = [
  { title: "JSON 1 kB, 50 a second, whole answer", mode: "json", perSecond: 50, told: "wholeMs" },
  { title: "JSON 1 kB, 5 a second, whole answer", mode: "json", perSecond: 5, told: "wholeMs" },
  {
    title: "200 events in one packet, 5 a second, first byte",
    mode: "packed",
    perSecond: 5,
    told: "firstByteMs",
  },
];
const ROUNDS = 5;
const ROUND_MS = 6_000;
/** The collector has everything by then. */
const EXPORT_MS = 6_000;

/**
 * Sparse traffic, as most users' is: caches are cold and cores asleep between requests. What is added to asking the
 * upstream directly, in turns; and what a traced Gapura says where its time goes.
 */
export async function sparse({ world, contestants, quick, say }: Bench): Promise<Outcome> {
  const rounds = quick ? 1 : ROUNDS;
  const tables: Table[] = [];
  for (const { title, mode, perSecond, told } of TRAFFIC) {
    const path = (at: string) => requestFor({ path: at, model: mode, stream: mode !== "json" });
    const targets = [
      { label: "direct", port: world.upstreamPort, request: path(`/${mode}`), ms: [] as number[] },
      ...subjects(contestants, mode).map(({ label, contestant }) => ({
        label,
        port: contestant.port,
        request: path(contestant.path(mode)),
        ms: [] as number[],
      })),
    ];
    for (let round = 0; round < rounds; round += 1)
      for (const { port, request, ms } of targets)
        ms.push(...(await sparseLoad({ port, request, perSecond, ms: ROUND_MS }))[told]);
    const base = median(targets[0]?.ms ?? []);
    say(title);
    tables.push({
      title: `${title}, ms`,
      columns: ["", "p50", "added", "p99"],
      rows: targets.map(({ label, ms }) => [
        label,
        millis(median(ms)),
        `+${millis(median(ms) - base)}`,
        millis(percentile(ms, 0.99)),
      ]),
    });
  }
  tables.push(await breakdown(world, rounds));
  return { tables };
}

/** Medians of the spans of a process that is traced; its own figures are not those above. */
async function breakdown(world: Bench["world"], rounds: number): Promise<Table> {
  await using collector = await startCollector();
  const traced = await world.gapura({ tracesTo: collector.url });
  const request = requestFor({ path: traced.path("json"), model: "json", stream: false });
  await sparseLoad({ port: traced.port, request, perSecond: 50, ms: rounds * ROUND_MS });
  await sleep(EXPORT_MS);
  await traced.stop();
  const byName = new Map<string, number[]>();
  for (const { name, ms } of collector.spans) byName.set(name, [...(byName.get(name) ?? []), ms]);
  return {
    title: "Where the time of JSON goes at 50 a second: spans, ms",
    columns: ["", "p50", "p99", "of them"],
    rows: [...byName].map(([name, ms]) => [
      name,
      millis(median(ms)),
      millis(percentile(ms, 0.99)),
      String(ms.length),
    ]),
  };
}
