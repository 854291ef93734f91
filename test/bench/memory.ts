/**
 * Resident memory of a data plane over time: ten minutes of full load of all kinds, then as many open streams as the
 * descriptors allow, 10,000 at most, then rest. `--plot` draws docs/performance/memory.svg.
 *   npm run bench -- memory [--plot]      node hack/ensure.mjs test/bench/memory.ts [--minutes 10] [--plot]
 */
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { renderTable } from "./figures.ts";
import { load, openStreams } from "./load.ts";
import { requestFor, type Mode } from "./payloads.ts";
import { treeRssBytes } from "./proc.ts";
import { streamsWithin } from "./parts/streams.ts";
import { mebibytes } from "./parts/part.ts";
import { timeLine } from "./svg.ts";
import { World } from "./world.ts";

const { values } = parseArgs({
  options: { minutes: { type: "string", default: "10" }, plot: { type: "boolean", default: false } },
});
const minutes = Number(values.minutes);
/** What is asked at once, each with so many connections: 128 in all. */
const LOAD: readonly (readonly [Mode, number])[] = [
  ["json", 32],
  ["whole", 32],
  ["burst", 16],
  ["messages", 16],
  ["responses", 16],
  ["packed", 16],
];
const ROUND_MS = 5_000;
const SAMPLE_MS = 1_000;
const REST_MS = 30_000;
const MIB = 1024 * 1024;

await using world = await World.open();
const gapura = await world.gapura();
const started = performance.now();
const seconds = () => (performance.now() - started) / 1_000;
const points: { at: number; value: number }[] = [];
const marks: { at: number; label: string }[] = [];
const rows: string[][] = [];
const sample = setInterval(
  () => points.push({ at: seconds(), value: treeRssBytes(gapura.pid) / MIB }),
  SAMPLE_MS,
);

/** Begins a part of the run. */
function begin(label: string): number {
  marks.push({ at: seconds(), label });
  process.stderr.write(`bench: ${label}\n`);
  return points.length;
}

/** Ends it: its last value and its largest. */
function end(label: string, since: number): void {
  const part = points.slice(since).map(({ value }) => value * MIB);
  rows.push([label, mebibytes(part.at(-1) ?? Number.NaN), mebibytes(Math.max(...part))]);
}

await sleep(2 * SAMPLE_MS);
end("start", 0);

const loaded = begin("full load");
const until = performance.now() + minutes * 60_000;
let requests = 0;
await Promise.all(
  LOAD.map(async ([mode, width]) => {
    const stream = mode !== "json" && mode !== "whole";
    const request = requestFor({ path: gapura.path(mode), model: mode, stream });
    while (performance.now() < until)
      requests += (await load({ port: gapura.port, request, width, ms: ROUND_MS })).requests;
  }),
);
end(`${minutes} minutes of full load, ${requests} requests`, loaded);

const opened = begin("open streams");
const open = await openStreams(
  gapura.port,
  requestFor({ path: gapura.path("open"), model: "open", stream: true }),
  streamsWithin(Number(spawnSync("sh", ["-c", "ulimit -n"], { encoding: "utf8" }).stdout), 10_000),
);
await sleep(REST_MS / 3);
end(`with ${open.count} open streams`, opened);
open.close();

const resting = begin("rest");
await sleep(REST_MS);
end(`${REST_MS / 1_000} s later`, resting);
clearInterval(sample);

console.log(renderTable({ title: "Resident memory in MiB", columns: ["", "at its end", "at most"], rows }));
if (values.plot)
  writeFileSync(
    join(resolve(import.meta.dirname, "../.."), "docs/performance/memory.svg"),
    timeLine({ title: "Resident memory of a data plane", unit: "MiB", points, marks }),
  );
