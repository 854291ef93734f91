import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { expect, test } from "vitest";
import { programEnvironment } from "../test/fakes/program-environment.ts";
import { watchForSurprises } from "../test/fakes/surprises.ts";

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

test("a folder that cannot be made ends the start, with its reason", async () => {
  const manifests = await mkdtemp(join(tmpdir(), "gapura-main-"));
  try {
    for (const [out, data] of [
      ["/proc/x", manifests],
      [manifests, "/proc/x/y"],
    ] as const) {
      const args = [program, "--manifests", manifests, "--out", out, "--data", data];
      const { status, stderr } = spawnSync(process.execPath, args, { encoding: "utf8", timeout: 20_000 });
      expect([status, stderr]).toEqual([1, expect.stringMatching(/^operator: ENOENT.*\/proc\/x/)]);
    }
  } finally {
    await rm(manifests, { recursive: true });
  }
}, 60_000);

/** The environment of a pod that reaches no API server, with some settings more. */
const podEnvironment = (settings: Readonly<Record<string, string>>) => ({
  ...programEnvironment(),
  POD_NAMESPACE: "gapura",
  POD_NAME: "operator-1",
  KUBECONFIG: "/nonexistent",
  ...settings,
});
const startedInCluster = (settings: Readonly<Record<string, string>>) =>
  spawnSync(process.execPath, [program], { encoding: "utf8", env: podEnvironment(settings) });

test("namespaces that cannot be are refused before anything is asked: nothing there would ever be served", () => {
  const { status, stderr } = startedInCluster({ WATCH_NAMESPACES: "team-a team-b" });
  expect([status, stderr]).toEqual([
    1,
    expect.stringContaining('WATCH_NAMESPACES: "team-a team-b" is not the name of one'),
  ]);
});

test.each([
  ["POD_NAMESPACE", "team.a", "must be a name of lower-case letters"],
  ["POD_NAME", "Operator 1", "must be a name of lower-case letters"],
  ["SNAPSHOT_NAME", "Gapura_1", "must be a name of lower-case letters"],
  ["SNAPSHOT_NAME", "a".repeat(64), "<=63 characters"],
  ["SEAL_SECRET", "Seal Key", "must be a name of lower-case letters"],
  ["DATA_PLANE_SELECTOR", "app=data plane", "must be a label selector"],
  ["OPS_PORT", "0x50", "must be a whole number from 0 to 65535"],
  ["OPS_PORT", "70000", "must be a whole number from 0 to 65535"],
  ["OPS_PORT", " ", "must be a whole number from 0 to 65535"],
  ["LOG_LEVEL", "warning", "must be one of fatal, error, warn, info, debug, trace, silent"],
  ["WATCH_NAMESPACES", " ", "is blank"],
  ["TENANCY", "\t", "is blank"],
])("%s=%s is refused at the start", (name, value, reason) => {
  const { status, stderr } = startedInCluster({ [name]: value });
  expect([status, stderr]).toEqual([2, expect.stringContaining(`operator: ${name}: `)]);
  expect(stderr).toContain(reason);
});

test("settings that are empty are as if they were absent", () => {
  const names = ["LOG_LEVEL", "SNAPSHOT_NAME", "SEAL_SECRET", "DATA_PLANE_SELECTOR", "OPS_PORT", "TENANCY"];
  const { stderr } = startedInCluster(Object.fromEntries(names.map((name) => [name, ""])));
  expect(stderr).toContain("the kubeconfig /nonexistent cannot be read");
});

test("an operator without its pod's name is told so", () => {
  const { status, stderr } = startedInCluster({ POD_NAME: "" });
  expect([status, stderr]).toEqual([2, "operator: POD_NAME: is missing\n"]);
});

test.each([
  ["QUOTA_OBJECTS", "many", "the quota of objects"],
  ["QUOTA_BYTES", "-1", "the quota of bytes"],
  ["PLATFORM_NAMESPACES", "Team_A", "Team_A"],
])("rule 14.7: %s=%s is read, and refused at the start", (name, value, reason) => {
  const { status, stderr } = startedInCluster({ TENANCY: "Namespaced", [name]: value });
  expect([status, stderr]).toEqual([1, expect.stringMatching(/^operator: /)]);
  expect(stderr).toContain(reason);
});

test("rule 14.3: a line of the operator's log is one JSON object with the level by name", async () => {
  const folder = await mkdtemp(join(tmpdir(), "gapura-main-"));
  const config = join(folder, "kubeconfig");
  await writeFile(
    config,
    JSON.stringify({
      clusters: [{ name: "away", cluster: { server: "https://127.0.0.1:1" } }],
      users: [{ name: "operator", user: { token: "none" } }],
      contexts: [{ name: "here", context: { cluster: "away", user: "operator" } }],
      "current-context": "here",
    }),
  );
  const env = podEnvironment({ KUBECONFIG: config, OPS_PORT: "0" });
  const child = spawn(process.execPath, [program], { env, stdio: ["ignore", "pipe", "pipe"] });
  watchForSurprises(child, "the operator");
  try {
    const [line] = (await once(createInterface(child.stdout), "line")) as [string];
    expect(JSON.parse(line)).toMatchObject({ level: "warn", error: expect.stringContaining("ECONNREFUSED") });
  } finally {
    child.kill("SIGKILL");
    await rm(folder, { recursive: true });
  }
}, 60_000);
