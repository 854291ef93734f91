/**
 * `npm test`: from a fresh clone, all tests but those that take long (LONG). `npm test -- --all`: those too.
 * `npm test -- PATTERN`: the tests whose path holds PATTERN, long or not.
 * `npm run check` (--fast): types, lint, format, tidy, and the unit tests that are quick and start no program (NOT_QUICK).
 * Types, lint and format are checked beside the tests, and reported after them.
 * With CI=true or --strict a skipped test counts as a failure. The output ends with the slowest ten files and, as the last
 * line, `N passed, N failed[, N skipped]`.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { LintCache } from "./lint-cache.ts";
import { endWithUs } from "./reaper.ts";

const USAGE = "usage: npm test -- [PART OF A PATH ...] [-u, which writes goldens] [--all] [--strict]";
/** Flag of vitest that writes golden files anew. */
const UPDATE = "-u";

const args = process.argv.slice(2);
// With a mistyped flag other tests than were meant would run, for half an hour perhaps.
const unknown = args.filter(
  (arg) => arg.startsWith("-") && !["--fast", "--strict", "--all", UPDATE].includes(arg),
);
if (unknown.length > 0) {
  console.error(`there is no ${unknown.join(", ")}\n${USAGE}`);
  process.exit(2);
}
const fast = args.includes("--fast");
const strict = args.includes("--strict") || process.env["CI"] === "true";
const all = args.includes("--all");
const patterns = args.filter((arg) => !arg.startsWith("-"));
const forVitest = args.filter((arg) => arg === UPDATE);
/** Whether to run everything but the long tests. */
const isShort = !fast && !all && patterns.length === 0;

/** What is read of vitest's JSON report. Moments in ms. */
interface Report {
  readonly numPassedTests?: number;
  readonly numFailedTests?: number;
  readonly numPendingTests?: number;
  readonly numTodoTests?: number;
  readonly testResults?: readonly FileResult[];
}
interface FileResult {
  readonly name: string;
  readonly startTime: number;
  readonly endTime: number;
}

/**
 * Tests that take long by their nature, left to `npm test -- --all`: faults of real processes, attacks, hundreds of
 * conversations, what helm makes of the charts, the image, installing from a mirror that is silent, bodies of the largest size,
 * streams at full speed against a bound of processor time, thousands of keys and requests at once, months of usage, a thousand
 * routes, walks through days of a cluster and among its strangers, and most of what a browser shows. Long tests without a store
 * are called heavy: they move megabytes or thousands of things, often against a bound of time or memory. `--all` also tries
 * properties with more cases (test/fakes/runs.ts).
 */
const LONG = [
  "**/*.heavy.test.ts",
  "test/chaos/**",
  "test/abuse/**",
  "test/charts/**",
  "test/console/{inference,reach,reports,room,shell,sign-in,sizes}.test.ts",
  "test/integration/{image,start-faults,tools-soak}.test.ts",
  "test/integration/{fast-streams,files-product,large-bodies,money-many-keys,usage-retention}.test.ts",
  "test/operator/{certificates,day-two,resilience,restarts,scale,tenancy,upgrade,watched-namespaces}.test.ts",
];

/** What `npm run check` leaves to `npm test`: unit tests that start programs, and those that take over a second of processor time. */
const NOT_QUICK = [
  "**/*.program.test.ts",
  "dataplane/http/{body-budget,routes/count-tokens}.test.ts",
  "dataplane/inference/{crowded-answers,disconnects,failover,fault-matrix,garbage-streams}.test.ts",
  "dataplane/inference/{limits-of-shapes,many-seals,streamed-as-whole.law,told-failures,usage.law}.test.ts",
  "dataplane/inference/request/{refuse,sealed-reasoning}.test.ts",
  "dataplane/{dialects/requests.law,lib/worker-pool,tokens/tokenizer,upstream/send}.test.ts",
  "dataplane/tools/web-fetch/{fetch-page,prior-context}.test.ts",
  "operator/folder/run.test.ts",
  "test/golden/{compile,pages}.test.ts",
];

/** From so many changed files on all are linted. */
const MOST_LINTED = 400;
const SLOWEST = 10;
const tally = { passed: 0, failed: 0, skipped: 0 };

/** Result of a check: whether all is well, and what its tool printed. */
interface Checked {
  readonly name: string;
  readonly isWell: boolean;
  readonly output: string;
  readonly seconds: number;
}

/** Runs a tool of node_modules to its end. @returns what it printed where that is a pipe. */
async function runTool(name: string, rest: readonly string[], prints: "pipe" | "inherit") {
  const tool = spawn(join("node_modules", ".bin", name), rest, {
    stdio: ["inherit", prints, prints],
    env: {
      ...process.env,
      ...(all ? { TEST_ALL: "true" } : {}),
      ...(isShort ? { TEST_STORE_WORKERS: "6" } : {}),
      ...(fast ? { TEST_UNIT_WORKERS: "6" } : {}),
    },
  });
  endWithUs(tool, "SIGTERM");
  let output = "";
  for (const stream of [tool.stdout, tool.stderr])
    stream?.setEncoding("utf8").on("data", (piece: string) => (output += piece));
  const [status] = (await once(tool, "close")) as [number | null];
  return { status, output };
}

/** Runs one of the tools as one check: it passes or fails as a whole. */
async function check(name: string, tool: string, ...rest: string[]): Promise<Checked> {
  const started = performance.now();
  const { status, output } = await runTool(tool, rest, "pipe");
  return { name, isWell: status === 0, output, seconds: (performance.now() - started) / 1000 };
}

/** Lints what changed since all was found good (lint-cache.ts); with `--strict` or CI, everything. */
async function lint(): Promise<Checked> {
  const whole = ["lint", "oxlint", "--type-aware"] as const;
  const { status, output } = await runTool("oxlint", ["--debug=files"], "pipe");
  const files = output.split("\n").filter((line) => line !== "");
  if (strict || status !== 0 || files.length === 0) return await check(...whole);
  const cache = new LintCache(process.cwd(), files);
  const changed = cache.unjudged();
  if (changed.length === 0) return { name: "lint: nothing changed", isWell: true, output: "", seconds: 0 };
  // More would not fit into a command line, and take as long as all.
  const checked = await check(...whole, ...(changed.length < MOST_LINTED ? changed : []));
  if (checked.isWell) cache.keep();
  return checked;
}

/** Checks what needs no test to run: types, lint, format. One after the other, beside the tests. */
async function checkStatically(): Promise<readonly Checked[]> {
  // What did not change since the last time is not checked again.
  const incremental = ["--incremental", "--tsBuildInfoFile", "node_modules/.cache/types.tsbuildinfo"];
  return [
    await check("types", "tsc", "--noEmit", ...incremental),
    await check("types of the console", "tsc", "--noEmit", "--project", "dataplane/console/src"),
    await lint(),
    await check("format", "oxfmt", "--check"),
  ];
}

function tell({ name, isWell, output, seconds }: Checked): void {
  if (!isWell) console.log(output);
  console.log(`${isWell ? "passed" : "FAILED"}  ${name} (${seconds.toFixed(1)} s)`);
  if (isWell) tally.passed += 1;
  else tally.failed += 1;
}

/** Runs vitest and adds its tests to the tally. `isBeside` another run: its output is printed when it is over. */
async function vitest(isBeside: boolean, ...rest: string[]): Promise<readonly FileResult[]> {
  const folder = mkdtempSync(join(tmpdir(), "gapura-test-"));
  const report = join(folder, "report.json");
  const { status, output } = await runTool(
    "vitest",
    ["run", "--reporter=default", "--reporter=json", `--outputFile.json=${report}`, ...rest],
    isBeside ? "pipe" : "inherit",
  );
  if (output !== "") console.log(output);
  try {
    const result = JSON.parse(readFileSync(report, "utf8")) as Report;
    tally.passed += result.numPassedTests ?? 0;
    tally.failed += result.numFailedTests ?? 0;
    tally.skipped += (result.numPendingTests ?? 0) + (result.numTodoTests ?? 0);
    // A file that could not even be loaded, or an unhandled error, fails the run without a failed test.
    if (status !== 0 && (result.numFailedTests ?? 0) === 0) tally.failed += 1;
    return result.testResults ?? [];
  } catch {
    console.error("vitest left no report");
    tally.failed += 1;
    return [];
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Prints the files that took longest, from their first test to the end of their last. */
function tellSlowest(results: readonly FileResult[]): void {
  const files = results
    .map(({ name, startTime, endTime }) => ({ name, seconds: (endTime - startTime) / 1000 }))
    .toSorted((one, other) => other.seconds - one.seconds)
    .slice(0, SLOWEST);
  console.log("the slowest:");
  for (const { name, seconds } of files)
    console.log(`${seconds.toFixed(1).padStart(8)} s  ${relative(process.cwd(), name)}`);
}

/** Arguments of concurrent vitest runs, each a process: tests of the cluster and of the console wait more than they work. */
function lanes(): readonly (readonly string[])[] {
  const without = (glob: string) => ["--exclude", glob];
  const short = LONG.flatMap(without);
  if (fast) {
    const light = patterns.length === 0 ? [...NOT_QUICK.flatMap(without), ...short] : patterns;
    return [["--project=unit", "--project=isolated", ...light]];
  }
  if (!isShort) return [patterns];
  return [
    ["--project=unit", "--project=isolated", "--project=integration", ...short],
    ["--project=operator", "--project=console", ...short],
  ];
}

const checks = patterns.length === 0 ? checkStatically() : null;
const results = await Promise.all(lanes().map((lane, index) => vitest(index > 0, ...lane, ...forVitest)));
tellSlowest(results.flat());
for (const checked of (await checks) ?? []) tell(checked);

const failed = tally.failed + (strict ? tally.skipped : 0);
if (strict && tally.skipped > 0) console.log(`${tally.skipped} skipped tests count as failures here`);
console.log(
  `${tally.passed} passed, ${failed} failed${!strict && tally.skipped > 0 ? `, ${tally.skipped} skipped` : ""}`,
);
process.exit(failed === 0 ? 0 : 1);
