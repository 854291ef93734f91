/**
 * `npm test`: everything, from a fresh clone. `npm test -- PATTERN`: the tests whose path holds PATTERN.
 * `npm run check` (--fast): what needs no store: types, lint, format, tidy, unit.
 * With CI=true or --strict a skipped test counts as a failure. The last line is `N passed, N failed[, N skipped]`.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const args = process.argv.slice(2);
const fast = args.includes("--fast");
const strict = args.includes("--strict") || process.env["CI"] === "true";
const patterns = args.filter((arg) => !arg.startsWith("--"));

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
    { stdio: "inherit" },
  );
  try {
    const result = JSON.parse(readFileSync(report, "utf8")) as Record<string, number>;
    tally.passed += result["numPassedTests"] ?? 0;
    tally.failed += result["numFailedTests"] ?? 0;
    tally.skipped += (result["numPendingTests"] ?? 0) + (result["numTodoTests"] ?? 0);
    // A file that could not even be loaded, or an unhandled error, fails the run without a failed test.
    if (status !== 0 && (result["numFailedTests"] ?? 0) === 0) tally.failed += 1;
  } catch {
    console.error("vitest left no report");
    tally.failed += 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (patterns.length === 0) {
  check("types", "tsc", "--noEmit");
  check("types of the console", "tsc", "--noEmit", "--project", "dataplane/console/src");
  check("lint", "oxlint", "--type-aware");
  check("format", "oxfmt", "--check");
}
if (fast) vitest("--project=unit", ...patterns);
else vitest(...patterns);

const failed = tally.failed + (strict ? tally.skipped : 0);
if (strict && tally.skipped > 0) console.log(`${tally.skipped} skipped tests count as failures here`);
console.log(
  `${tally.passed} passed, ${failed} failed${!strict && tally.skipped > 0 ? `, ${tally.skipped} skipped` : ""}`,
);
process.exit(failed === 0 ? 0 : 1);
