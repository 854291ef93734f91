import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";

const program = join(import.meta.dirname, "main.ts");

test.each([
  [
    ["--manifests", "a", "--out", "b", "--data", "c", "--ack", "nonsense"],
    "--ack must be an http or https URL",
  ],
  [
    ["--manifests", "a", "--out", "b", "--data", "c", "--ack", "redis://x"],
    "--ack must be an http or https URL",
  ],
  [["--manifests", "a"], "--manifests, --out and --data belong together"],
  [["--nonsense"], "Unknown option '--nonsense'"],
])("%j is refused with its reason and the usage", (args, reason) => {
  const { status, stderr } = spawnSync(process.execPath, [program, ...args], { encoding: "utf8" });
  expect(status).toBe(2);
  expect(stderr).toContain(`operator: ${reason}`);
  expect(stderr).toContain("usage: operator/main.ts");
});
