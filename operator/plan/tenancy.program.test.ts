import { spawnSync } from "node:child_process";
import { join, resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { programEnvironment } from "../../test/fakes/program-environment.ts";

const root = resolve(import.meta.dirname, "..", "..");
const run = (program: string, args: readonly string[], env: Readonly<Record<string, string>> = {}) =>
  spawnSync(process.execPath, [join(root, program), ...args], {
    cwd: root,
    encoding: "utf8",
    env: { ...programEnvironment(), ...env },
  });

// Programs that are started may take long beside the tests of a busy machine.
describe("an unknown tenancy ends with exit 1 and its name", { timeout: 60_000 }, () => {
  const named = 'unknown tenancy "Open"';

  test("the operator of a folder", () => {
    const folders = ["--manifests=hack/demo", "--out=/nonexistent", "--data=/nonexistent"];
    const { status, stderr } = run("operator/main.ts", [...folders, "--tenancy=Open"]);
    expect([status, stderr]).toEqual([1, expect.stringContaining(named)]);
  });

  test("the operator of a cluster, before it asks anybody", () => {
    const { status, stderr } = run("operator/main.ts", [], {
      POD_NAMESPACE: "gapura",
      POD_NAME: "operator-1",
      KUBECONFIG: "/nonexistent",
      TENANCY: "Open",
    });
    expect([status, stderr]).toEqual([1, expect.stringContaining(named)]);
  });

  test("npm start, before it starts anything", () => {
    const { status, stderr } = run("hack/start.ts", ["--data=/nonexistent/data", "--tenancy=Open"]);
    expect([status, stderr]).toEqual([1, expect.stringContaining(named)]);
  });
});

test("npm run validate says what a tenant may not", { timeout: 60_000 }, () => {
  const folder = "test/golden/compile/tenancy/input";
  const flags = ["--tenancy=Namespaced", "--platform-namespaces=default"];
  const { status, stdout } = run("operator/validate.ts", [folder, ...flags]);
  expect(status).toBe(1);
  expect(stdout).toContain("Organization/rich spec.credits.grants: NotPermitted:");
  expect(run("operator/validate.ts", [folder, ...flags, "--quota-objects=3"]).stdout).toContain(
    "(quotas.objects)",
  );
  const platform = ["--tenancy=Namespaced", "--platform-namespaces=default,team"];
  expect(run("operator/validate.ts", [folder, ...platform]).stdout).not.toContain("NotPermitted");
});
