/**
 * `npm run bench`: Gapura beside nginx and a bare relay, in one run on one machine (docs/performance.md).
 *   npm run bench                    the parts `relay`, `latency`, `convert`, `routes` and `streams`; under 6 minutes
 *   npm run bench -- NAME            one part: those, `profile`, or a script of this folder (`money`, `pages`, ...)
 *   npm run bench -- --quick         shorter rounds and fewer streams, under a minute
 *   npm run bench -- --plot          also draws docs/performance/*.svg
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { convert } from "./convert.ts";
import { median, ratio, renderTable, type Table } from "./figures.ts";
import { load, openStreams } from "./load.ts";
import { measure, type Measured, type Subject } from "./measure.ts";
import { requestFor, type Mode } from "./payloads.ts";
import { treeRssBytes } from "./proc.ts";
import { readProfile, type HotSpot } from "./profile.ts";
import { barChart, type Chart } from "./svg.ts";
import { World, type Contestant, type GapuraProcess } from "./world.ts";

const root = resolve(import.meta.dirname, "../..");
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { quick: { type: "boolean", default: false }, plot: { type: "boolean", default: false } },
});
const { quick } = values;

/** Width: enough requests at once to keep one core busy. */
const rounds = quick ? { rounds: 1, ms: 800, width: 64 } : { rounds: 3, ms: 1_500, width: 64 };
/** One request at a time: what one client feels. */
const alone = { ...rounds, width: 1 };
/** Enough to keep a core busy that also does the work of a conversion. */
const FEW_AT_ONCE = 16;
const OTHER_ROUTES = 10_000;
const WANTED_STREAMS = quick ? 1_000 : 10_000;
/** Descriptors of a proxy that are not streams: stores, files, listeners. */
const OTHER_DESCRIPTORS = 300;
const PROFILE_MS = 6_000;
const micros = (value: number) => value.toFixed(value < 100 ? 1 : 0);
const millis = (value: number) => value.toFixed(2);
const mebibytes = (bytes: number) => (bytes / 1024 / 1024).toFixed(0);

interface Contestants {
  readonly nginx: Contestant | null;
  readonly bare: Contestant;
  readonly gapura: GapuraProcess;
}
interface Outcome {
  readonly tables: readonly Table[];
  readonly charts?: Readonly<Record<string, Chart>>;
}
type Part = (world: World, contestants: Contestants) => Promise<Outcome>;

const parts: Readonly<Record<string, Part>> = {
  relay,
  latency,
  convert: (world, { gapura }) =>
    convert(world, gapura, { rounds: { ...rounds, width: FEW_AT_ONCE }, quick }),
  routes,
  streams,
};

await main(positionals[0]);

async function main(name: string | undefined): Promise<void> {
  const script = join(import.meta.dirname, `${name}.ts`);
  if (name === "profile") return profile();
  if (name !== undefined && parts[name] === undefined) {
    if (!existsSync(script) || name === "main")
      throw new Error(`there is no bench ${name}: ${known().join(", ")}`);
    process.exitCode = spawnSync(process.execPath, [script], { stdio: "inherit" }).status ?? 1;
    return;
  }
  const started = performance.now();
  console.log(conditions());
  await using world = await World.open();
  const contestants = {
    nginx: await world.nginx(),
    bare: await world.bareRelay(),
    gapura: await world.gapura(),
  };
  if (contestants.nginx === null) console.log("nginx is not installed: its rows are missing");
  for (const [part, run] of Object.entries(parts)) {
    if (name !== undefined && part !== name) continue;
    const { tables, charts = {} } = await run(world, contestants);
    for (const table of tables) console.log(`\n${renderTable(table)}`);
    if (values.plot) plot(charts);
  }
  console.log(`\n${conditions()}; took ${Math.round((performance.now() - started) / 1_000)} s`);
}

/** Single scripts that others left here. */
function known(): string[] {
  const own = [
    "main",
    "convert",
    "raw-upstream",
    "bare-relay",
    "world",
    "measure",
    "load",
    "payloads",
    "proc",
    "figures",
    "svg",
  ];
  const scripts = readdirSync(import.meta.dirname).map((file) => file.replace(/\.ts$/, ""));
  return [...Object.keys(parts), ...scripts.filter((file) => !own.includes(file) && !file.endsWith(".test"))];
}

function conditions(): string {
  const load = loadavg().map((value) => value.toFixed(1));
  return `${new Date().toISOString()}; Node ${process.version}; ${cpus().length} cores, ${cpus()[0]?.model.trim() ?? "unknown"}; load ${load.join(", ")}`;
}

function subjects({ nginx, bare, gapura }: Contestants, mode: Mode): Subject[] {
  return [nginx, bare, gapura].flatMap((contestant) =>
    contestant === null ? [] : [{ label: contestant.name, contestant, mode }],
  );
}

/** CPU of a relayed request beside nginx and the bare relay. */
async function relay(_: World, contestants: Contestants): Promise<Outcome> {
  const shown: readonly (readonly [Mode, string, number])[] = [
    ["json", "JSON 1 kB", 2],
    ["burst", "200 events at once", 1.15],
    ["paced", "200 events 2 ms apart", 1.15],
    ["packed", "200 events in one packet", 1.15],
    ["messages", "200 Messages events at once", 1.15],
  ];
  const rows: string[][] = [];
  const charts: Record<string, Chart> = {};
  for (const [mode, title, target] of shown) {
    if (quick && (mode === "packed" || mode === "messages")) continue;
    const measured = await measure(subjects(contestants, mode), {
      ...rounds,
      width: mode === "paced" ? 16 : rounds.width,
    });
    const base = cpuOf(measured, "bare relay");
    process.stderr.write(
      `bench: ${title}: ${micros(cpuOf(measured, "Gapura"))} µs, ${ratio(cpuOf(measured, "Gapura"), base)} the bare relay\n`,
    );
    for (const { label, cpuMicros, perSecond } of measured) {
      rows.push([title, label, micros(cpuMicros), ratio(cpuMicros, base), perSecond.toFixed(0)]);
    }
    charts[`relay-${mode}`] = {
      title,
      unit: "µs of CPU per request",
      bars: measured.map(({ label, cpuMicros }) => ({ label, value: cpuMicros })),
      limit: { label: `goal: ${target} × bare`, value: target * base },
    };
  }
  const columns = ["CPU of a relayed request", "", "µs", "bare relay", "requests/s"];
  return { tables: [{ title: "Relay", columns, rows }], charts };
}

function cpuOf(measured: readonly Measured[], label: string): number {
  return measured.find((one) => one.label === label)?.cpuMicros ?? Number.NaN;
}

/** What a client feels that sends one request at a time, beside asking the upstream itself. */
async function latency(world: World, contestants: Contestants): Promise<Outcome> {
  const direct: Contestant = {
    name: "bare relay",
    port: world.upstreamPort,
    pid: process.pid,
    path: (mode) => `/${mode}`,
  };
  const tables: Table[] = [];
  for (const [mode, title] of [
    ["json", "JSON 1 kB"],
    ["packed", "200 events in one packet"],
  ] as const) {
    const all = [{ label: "direct", contestant: direct, mode }, ...subjects(contestants, mode)];
    const measured = await measure(all, alone);
    const [base] = measured;
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
  }
  return { tables };
}

/** The same request with few and with 10,000 routes, and how long an edit of one takes to be served. */
async function routes(_: World, { gapura }: Contestants): Promise<Outcome> {
  const counts = [0, OTHER_ROUTES];
  const samples = counts.map((others) => ({ others, cpu: [] as number[], reload: [] as number[], rss: 0 }));
  for (let round = 0; round < (quick ? 1 : 3); round += 1) {
    for (const sample of samples) {
      await gapura.publish(sample.others, `round ${round}`);
      for (let edit = 0; edit < 3; edit += 1) {
        sample.reload.push(await gapura.publish(sample.others, `round ${round}, edit ${edit}`));
      }
      // What a reload leaves behind is collected before anything is measured.
      const [measured] = await measure([{ label: "Gapura", contestant: gapura, mode: "json" }], {
        ...rounds,
        rounds: 2,
      });
      if (measured !== undefined) sample.cpu.push(measured.cpuMicros);
      sample.rss = treeRssBytes(gapura.pid);
    }
  }
  await gapura.publish(0, "last");
  const base = median(samples[0]?.cpu ?? []);
  return {
    tables: [
      {
        title: "Routes",
        columns: [
          "routes",
          "JSON 1 kB, µs of CPU",
          "ratio",
          "edit to served, ms (median)",
          "worst",
          "RSS, MiB",
        ],
        rows: samples.map(({ others, cpu, reload, rss }) => [
          String(others + 7),
          micros(median(cpu)),
          ratio(median(cpu), base),
          median(reload).toFixed(0),
          Math.max(...reload).toFixed(0),
          mebibytes(rss),
        ]),
      },
    ],
    charts: {
      reload: {
        title: "From a published snapshot to serving it",
        unit: "ms",
        bars: samples.map(({ others, reload }) => ({ label: `${others + 7} routes`, value: median(reload) })),
        limit: { label: "goal: 1 s", value: 1_000 },
      },
    },
  };
}

/** Memory of streams that stay open. A client and an upstream connection each: two descriptors of the proxy. */
async function streams(_: World, contestants: Contestants): Promise<Outcome> {
  const descriptors = Number(spawnSync("sh", ["-c", "ulimit -n"], { encoding: "utf8" }).stdout);
  const count = Math.min(WANTED_STREAMS, Math.floor((descriptors - OTHER_DESCRIPTORS) / 2));
  const rows: string[][] = [];
  const bars: { label: string; value: number }[] = [];
  for (const { contestant } of subjects(contestants, "open")) {
    const before = treeRssBytes(contestant.pid);
    const path = contestant.path("open");
    const request = requestFor({ path, model: "open", stream: true });
    const open = await openStreams(contestant.port, request, count).catch((error: Error) => error);
    if (open instanceof Error) {
      // Said in the table: the others' figures are still worth having.
      rows.push([contestant.name, mebibytes(before), `failed: ${open.message.split("\r\n", 1)[0]}`, ""]);
      await sleep(2_000);
      continue;
    }
    const after = treeRssBytes(contestant.pid);
    open.close();
    const each = (after - before) / count / 1024;
    rows.push([contestant.name, mebibytes(before), mebibytes(after), each.toFixed(1)]);
    bars.push({ label: contestant.name, value: after / 1024 / 1024 });
    await sleep(2_000);
  }
  const note = count < WANTED_STREAMS ? `; ${descriptors} descriptors allow no more` : "";
  return {
    tables: [
      {
        title: `${count} open streams${note}`,
        columns: ["", "RSS before, MiB", "with streams, MiB", "kB each"],
        rows,
      },
    ],
    charts: {
      streams: {
        title: `${count} open streams`,
        unit: "MiB",
        bars,
        limit: { label: "goal: 1 GiB", value: 1024 },
      },
    },
  };
}

/** Where the data plane's CPU goes: JSON, then 200 events at once, each with a profile of its own. */
async function profile(): Promise<void> {
  console.log(conditions());
  const folder = join(root, ".gapura", "profiles");
  mkdirSync(folder, { recursive: true });
  await using world = await World.open();
  for (const mode of ["json", "burst"] as const) {
    const known = new Set(readdirSync(folder));
    const gapura = await world.gapura({ profileTo: folder });
    const request = requestFor({ path: gapura.path(mode), model: mode, stream: mode === "burst" });
    await load({ port: gapura.port, request, width: rounds.width, ms: 2 * PROFILE_MS });
    await gapura.stop();
    for (const file of readdirSync(folder).filter((name) => !known.has(name))) {
      const { functions, rooms } = readProfile(join(folder, file), PROFILE_MS);
      const rows = (spots: readonly HotSpot[], count: number) =>
        spots.slice(0, count).map(({ where, share }) => [where, (share * 100).toFixed(1)]);
      const title = `${mode}: share of busy CPU time (${file})`;
      console.log(`\n${renderTable({ title, columns: ["function", "%"], rows: rows(functions, 20) })}`);
      console.log(`\n${renderTable({ title, columns: ["room", "%"], rows: rows(rooms, 20) })}`);
    }
  }
}

function plot(charts: Readonly<Record<string, Chart>>): void {
  const folder = join(root, "docs", "performance");
  mkdirSync(folder, { recursive: true });
  for (const [name, chart] of Object.entries(charts))
    writeFileSync(join(folder, `${name}.svg`), barChart(chart));
}
