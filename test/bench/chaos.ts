/** The chaos test for as long as the issue asks: 100 requests a second for a minute, 500 ms for the first byte. */
import { spawnSync } from "node:child_process";
import { resolve } from "node:path";

const root = resolve(import.meta.dirname, "../..");
const SECONDS = 60;

const { status } = spawnSync(
  process.execPath,
  ["hack/ensure.mjs", "--bin", "vitest", "run", "test/chaos/upstreams.test.ts"],
  { cwd: root, stdio: "inherit", env: { ...process.env, GAPURA_CHAOS_SECONDS: String(SECONDS) } },
);
process.exitCode = status ?? 1;
