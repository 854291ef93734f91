/**
 * `npm test`: from a fresh clone, everything but what takes long (LONG). `npm test -- --all`: that too.
 * `npm test -- PATTERN`: the tests whose path holds PATTERN, long or not.
 * `npm run check` (--fast): what needs no store: types, lint, format, tidy, unit.
 * With CI=true or --strict a skipped test counts as a failure. At the end stand the slowest ten files, and as the last
 * line `N passed, N failed[, N skipped]`.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";

const args = process.argv.slice(2);
const fast = args.includes("--fast");
const strict = args.includes("--strict") || process.env["CI"] === "true";
const all = args.includes("--all");
const patterns = args.filter((arg) => !arg.startsWith("--"));

/** What vitest's JSON report says, as far as it is read here. Moments in ms. */
interface Report {
  readonly numPassedTests?: number;
  readonly numFailedTests?: number;
  readonly numPendingTests?: number;
  readonly numTodoTests?: number;
  readonly testResults?: readonly {
    readonly name: string;
    readonly startTime: number;
    readonly endTime: number;
  }[];
}

/**
 * What takes long by its nature, and which `npm test` leaves to `npm test -- --all`: faults of real processes, what helm
 * makes of the charts, the image, a thousand routes, and walks through days of a cluster.
 */
const LONG = [
  "test/chaos/**",
  "test/charts/**",
  "test/integration/image.test.ts",
  "test/operator/{day-two,resilience,scale,upgrade}.test.ts",
];

const SLOWEST = 10;
const tally = { passed: 0, failed: 0, skipped: 0 };

/** Runs one of the tools as one check: it passes or fails as a whole. */
function check(name: string, bin: string, ...rest: string[]): void {
  const started = performance.now();
  const { status } = spawnSync(join("node_modules", ".bin", bin), rest, { stdio: "inherit" });
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  console.log(`${status === 0 ? "passed" : "FAILED"}  ${name} (${seconds} s)`);
  if (status === 0) tally.passed += 1;
  else tally.failed += 1;
}

/** Runs vitest and adds its tests to the tally. */
function vitest(...rest: string[]): void {
  const folder = mkdtempSync(join(tmpdir(), "gapura-test-"));
  const report = join(folder, "report.json");
  const { status } = spawnSync(
    join("node_modules", ".bin", "vitest"),
    ["run", "--reporter=default", "--reporter=json", `--outputFile.json=${report}`, ...rest],
    { stdio: "inherit", env: { ...process.env, ...(all ? { TEST_ALL: "true" } : {}) } },
  );
  try {
    const result = JSON.parse(readFileSync(report, "utf8")) as Report;
    tally.passed += result.numPassedTests ?? 0;
    tally.failed += result.numFailedTests ?? 0;
    tally.skipped += (result.numPendingTests ?? 0) + (result.numTodoTests ?? 0);
    // A file that could not even be loaded, or an unhandled error, fails the run without a failed test.
    if (status !== 0 && (result.numFailedTests ?? 0) === 0) tally.failed += 1;
    tellSlowest(result);
  } catch {
    console.error("vitest left no report");
    tally.failed += 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The files that took longest, from their first test to the end of their last. */
function tellSlowest({ testResults = [] }: Report): void {
  const files = testResults
    .map(({ name, startTime, endTime }) => ({ name, seconds: (endTime - startTime) / 1000 }))
    .toSorted((one, other) => other.seconds - one.seconds)
    .slice(0, SLOWEST);
  console.log("the slowest:");
  for (const { name, seconds } of files)
    console.log(`${seconds.toFixed(1).padStart(8)} s  ${relative(process.cwd(), name)}`);
}

if (patterns.length === 0) {
  check("types", "tsc", "--noEmit");
  check("types of the console", "tsc", "--noEmit", "--project", "dataplane/console/src");
  check("lint", "oxlint", "--type-aware");
  check("format", "oxfmt", "--check");
}
if (fast) vitest("--project=unit", "--project=isolated", ...patterns);
else if (all || patterns.length > 0) vitest(...patterns);
else vitest(...LONG.flatMap((glob) => ["--exclude", glob]));

const failed = tally.failed + (strict ? tally.skipped : 0);
if (strict && tally.skipped > 0) console.log(`${tally.skipped} skipped tests count as failures here`);
console.log(
  `${tally.passed} passed, ${failed} failed${!strict && tally.skipped > 0 ? `, ${tally.skipped} skipped` : ""}`,
);
process.exit(failed === 0 ? 0 : 1);
