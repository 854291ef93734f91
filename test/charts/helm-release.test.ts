/** The life of a release in a real API server: installed, upgraded, rolled back, removed. Pods are nobody's here. */
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { parse, stringify } from "yaml";
import { z } from "zod";
import type { KubeAccess } from "../../hack/kube-apiserver.ts";
import { KubeClient } from "../operator/kube-client.ts";
import { kubeTool } from "./helm.ts";
import { stores } from "./matrix.ts";
import { mustKubectl } from "./kubectl.ts";

const kube = inject("kube");
const home = "helm-release";
const root = resolve(import.meta.dirname, "../..");
/** What a release may leave behind is looked for among these. */
const KINDS =
  "deployments,statefulsets,jobs,pods,services,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies,configmaps";

describe.skipIf(kube === null)("a release", () => {
  const access = kube as KubeAccess;
  let client: KubeClient;

  const helm = async (args: readonly string[], values?: object) => {
    const flags = ["--kubeconfig", access.kubeconfig, "--namespace", home, "--timeout", "60s"];
    const child = spawn(
      await kubeTool("helm"),
      [...args, ...flags, ...(values === undefined ? [] : ["--values", "-"])],
      {
        stdio: ["pipe", "pipe", "pipe"],
      },
    );
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk: Buffer) => (output += String(chunk)));
    child.stdin.end(JSON.stringify(values ?? {}));
    const ended = new Promise<number | null>((done) => child.once("close", done));
    return { ended, output: () => output };
  };
  const mustHelm = async (args: readonly string[], values?: object) => {
    const { ended, output } = await helm(args, values);
    if ((await ended) !== 0) throw new Error(`helm ${args.join(" ")}: ${output()}`);
  };
  const names = async () => {
    const out = await mustKubectl(access, ["get", KINDS, "--namespace", home, "--output", "name"]);
    return out.split("\n").filter((name) => name.includes("gapura"));
  };
  const deployment = async () =>
    z
      .object({ spec: z.object({ replicas: z.number() }) })
      .parse(await client.must("GET", `/apis/apps/v1/namespaces/${home}/deployments/gapura-data-plane`)).spec
      .replicas;

  beforeAll(async () => {
    client = new KubeClient(access);
    await client.makeNamespace(home);
  });
  afterAll(() => client.close());

  /** Does what the Job controller would, once the job is there. @returns what else the release had made by then. */
  async function completeMigration(): Promise<string[]> {
    const path = `/apis/batch/v1/namespaces/${home}/jobs/gapura-migrate`;
    await client.until("the migration job", async () => (await client.call("GET", path)).status === 200);
    const others = (await names()).filter((name) => name !== "job.batch/gapura-migrate");
    const at = new Date().toISOString().replace(/\.\d+Z$/, "Z");
    const condition = (type: string) => ({ type, status: "True", lastTransitionTime: at });
    await client.must("PATCH", `${path}/status`, {
      apiVersion: "batch/v1",
      kind: "Job",
      metadata: { name: "gapura-migrate" },
      status: {
        startTime: at,
        completionTime: at,
        succeeded: 1,
        uncountedTerminatedPods: {},
        conditions: [condition("SuccessCriteriaMet"), condition("Complete")],
      },
    });
    return others;
  }

  test("migrates before it makes anything else, and then makes the rest", async () => {
    const install = await helm(["install", "gapura", "charts/gapura"], stores);
    expect(await completeMigration()).toEqual([]);
    expect({ code: await install.ended, output: install.output() }).toMatchObject({ code: 0 });
    // Rule 8.1: the notes say who may do what.
    expect(install.output()).toContain(`Who may do what (tenancy: Trusted; everything: ${home})`);
    for (const kind of ["ModelRoute", "PriceTable", "ToolPolicy", "Organization"])
      expect(install.output()).toMatch(new RegExp(`^  ${kind} +\\S.* {2}\\S`, "m"));
    expect(await names()).toEqual(
      expect.arrayContaining(["deployment.apps/gapura-data-plane", "deployment.apps/gapura-operator"]),
    );
    // A job that has succeeded goes away with its hook.
    expect(await names()).not.toContain("job.batch/gapura-migrate");
    expect(await deployment()).toBe(2);
  });

  test("migrates before an upgrade, and rolls back without", async () => {
    const values = { ...stores, dataPlane: { replicas: 4 } };
    const upgrade = await helm(["upgrade", "gapura", "charts/gapura"], values);
    expect(await completeMigration()).toContain("deployment.apps/gapura-data-plane");
    expect(await upgrade.ended).toBe(0);
    expect(await deployment()).toBe(4);
    await mustHelm(["rollback", "gapura", "1"]);
    expect(await deployment()).toBe(2);
  });

  test("stands beside a second one, and leaves nothing of its own behind", async () => {
    const before = await names();
    await mustHelm(["install", "other", "charts/gapura"], { quickstart: { enabled: true } });
    expect((await names()).length).toBeGreaterThan(before.length);
    await mustHelm(["uninstall", "gapura"]);
    expect((await names()).filter((name) => !name.includes("/other-"))).toEqual([]);
    await mustHelm(["uninstall", "other"]);
    expect(await names()).toEqual([]);
  });

  test("the runbook's upgrade takes over the values of a release that had fewer of them", async () => {
    const runbook = await readFile(join(root, "docs/operations.md"), "utf8");
    const flag = /^helm upgrade gapura charts\/gapura .*(--\S+-values)/m.exec(runbook)?.[1] ?? "none";
    const older = await mkdtemp(join(tmpdir(), "gapura-chart-"));
    try {
      const text = await readFile(join(root, "charts/gapura/values.yaml"), "utf8");
      const { retention: _, tests: __, ...values } = parse(text) as Record<string, unknown>;
      await mkdir(join(older, "templates"));
      await writeFile(join(older, "values.yaml"), stringify(values));
      await writeFile(join(older, "Chart.yaml"), "apiVersion: v2\nname: gapura\nversion: 0.0.1\n");
      await mustHelm(["install", "gapura", older], { ...stores, dataPlane: { replicas: 4 } });
      // Without a file of values: they are those of the release.
      await mustHelm(["upgrade", "gapura", "charts/gapura", "--no-hooks", flag]);
      expect(await deployment()).toBe(4);
    } finally {
      await rm(older, { recursive: true, force: true });
      await mustHelm(["uninstall", "gapura"]);
    }
  });

  test("the definitions stay when their release goes", async () => {
    const crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/modelroutes.gapura.dev";
    const take = ["--take-ownership", "--force-conflicts"];
    await mustHelm(["install", "gapura-crds", "charts/gapura-crds", ...take]);
    await mustHelm(["uninstall", "gapura-crds"]);
    expect((await client.call("GET", crd)).status).toBe(200);
  });
});
