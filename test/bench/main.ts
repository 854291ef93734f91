/**
 * `npm run bench`: Gapura beside nginx and a bare relay, in one run on one machine (docs/performance.md).
 *   npm run bench                    the parts `relay`, `latency`, `convert`, `streams`, `routes` and `limits`
 *   npm run bench -- NAME            one part: those, `mixed`, `sparse`, `profile`, or a script of this folder (`money`, ...)
 *   npm run bench -- against DIR [KIND...]   this checkout beside another one, in turns (kinds of answers: payloads.ts)
 *   npm run bench -- profile [KIND...]       where the CPU goes, of `json` and `burst` unless kinds are named
 *   npm run bench -- --quick         shorter rounds and fewer streams
 *   npm run bench -- --plot          also draws docs/performance/*.svg
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join, resolve } from "node:path";
import { flagsOrEnd } from "../../hack/flags-or-end.ts";
import { renderTable } from "./figures.ts";
import { load } from "./load.ts";
import { against } from "./parts/against.ts";
import { convert } from "./parts/convert.ts";
import { latency } from "./parts/latency.ts";
import { limits } from "./parts/limits.ts";
import { mixed } from "./parts/mixed.ts";
import { chosen, roundsOf, type Part } from "./parts/part.ts";
import { relay } from "./parts/relay.ts";
import { routes } from "./parts/routes.ts";
import { sparse } from "./parts/sparse.ts";
import { streams } from "./parts/streams.ts";
import { isStream, modes, requestFor } from "./payloads.ts";
import { readProfile, type HotSpot } from "./profile.ts";
import { barChart, type Chart } from "./svg.ts";
import { World } from "./world.ts";

const root = resolve(import.meta.dirname, "../..");
const USAGE = "usage: npm run bench -- [NAME | against DIR [KIND...] | profile [KIND...]] [--quick] [--plot]";
const { values, positionals } = flagsOrEnd(USAGE, {
  allowPositionals: true,
  options: { quick: { type: "boolean", default: false }, plot: { type: "boolean", default: false } },
});
const { quick } = values;
const PROFILE_MS = 6_000;
/** Named on the command line by themselves, without a world. */
const SCRIPTS = [
  "answer-streams",
  "batches",
  "chaos",
  "idle-pods",
  "memory",
  "migrations",
  "money",
  "pages",
  "reports",
  "requests",
  "scale",
  "settle",
  "tokens",
  "whole-answers",
];

const parts: Readonly<Record<string, Part>> = { relay, latency, convert, streams, routes, limits };
/** Named on the command line only. */
const onRequest: Readonly<Record<string, Part>> = { mixed, sparse, against };

await main(positionals[0], positionals.slice(1));

/** @param given what stands behind the name. */
async function main(name: string | undefined, given: readonly string[]): Promise<void> {
  if (name === "profile") return profile(given);
  const [checkout, ...only] = given;
  if (name !== undefined && SCRIPTS.includes(name)) {
    const script = join(import.meta.dirname, `${name}.ts`);
    const args = [
      script,
      ...(values.plot ? ["--plot"] : []),
      ...(quick && name === "scale" ? ["--quick"] : []),
    ];
    process.exitCode = spawnSync(process.execPath, args, { stdio: "inherit" }).status ?? 1;
    return;
  }
  const known = { ...parts, ...onRequest };
  if (name !== undefined && known[name] === undefined)
    throw new Error(
      `there is no bench ${name}: ${[...Object.keys(known), "profile", ...SCRIPTS].join(", ")}`,
    );
  const started = performance.now();
  const seconds = () => Math.round((performance.now() - started) / 1_000);
  const say = (line: string) => process.stderr.write(`bench: ${seconds()} s: ${line}\n`);
  console.log(conditions());
  await using world = await World.open();
  const contestants = {
    nginx: await world.nginx(),
    bare: await world.bareRelay(),
    gapura: await world.gapura(),
  };
  if (contestants.nginx === null) console.log("nginx is not installed: its rows are missing");
  for (const [part, run] of Object.entries(name === undefined ? parts : known)) {
    if (name !== undefined && part !== name) continue;
    say(part);
    const bench = { world, contestants, quick, rounds: roundsOf(quick), checkout, only, say };
    const { tables, charts = {} } = await run(bench);
    for (const table of tables) console.log(`\n${renderTable(table)}`);
    if (values.plot) plot(charts);
  }
  console.log(`\n${conditions()}; took ${seconds()} s`);
}

function conditions(): string {
  const load = loadavg().map((value) => value.toFixed(1));
  return `${new Date().toISOString()}; Node ${process.version}; ${cpus().length} cores, ${cpus()[0]?.model.trim() ?? "unknown"}; load ${load.join(", ")}`;
}

/** Where the data plane's CPU goes, each kind of answer with a profile of its own. */
async function profile(kinds: readonly string[]): Promise<void> {
  const wanted = chosen(kinds.length === 0 ? ["json", "burst"] : kinds, modes);
  console.log(conditions());
  const folder = join(root, ".gapura", "profiles");
  mkdirSync(folder, { recursive: true });
  await using world = await World.open();
  for (const mode of wanted) {
    const known = new Set(readdirSync(folder));
    const gapura = await world.gapura({ profileTo: folder });
    const request = requestFor({ path: gapura.path(mode), model: mode, stream: isStream(mode) });
    await load({ port: gapura.port, request, width: roundsOf(false).width, ms: 2 * PROFILE_MS });
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
