/** The CRDs on a real API server: what it takes, what it refuses, what it shows. */
import { spawnSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { parse } from "yaml";
import { API_VERSION } from "../../operator/api/fields.ts";
import { type Kind, KINDS, kinds } from "../../operator/api/kinds.ts";
import { kubeTool } from "../charts/helm.ts";
import { gapuraPath, KubeClient, type KubeObject } from "./kube-client.ts";
import { objectTable } from "./object-table.ts";

const access = inject("kube");
const examples = resolve(import.meta.dirname, "..", "golden", "compile", "every-field", "input");

describe.skipIf(access === null)("CRDs on a real kube-apiserver", () => {
  const namespace = "crds";
  let client: KubeClient;
  let serial = 0;
  beforeAll(async () => {
    if (access === null) throw new Error("there is no API server");
    client = new KubeClient(access);
    await client.makeNamespace(namespace);
  });
  afterAll(() => client.close());

  const manifest = (kind: Kind, name: string, spec: unknown) => ({
    apiVersion: API_VERSION,
    kind,
    metadata: { name, namespace },
    spec,
  });
  const create = (kind: Kind, name: string, spec: unknown) =>
    client.call("POST", gapuraPath(kinds[kind].plural, namespace), manifest(kind, name, spec));
  const replace = async (kind: Kind, name: string, spec: unknown) => {
    const path = gapuraPath(kinds[kind].plural, namespace, name);
    const current = await client.must("GET", path);
    return client.call("PUT", path, { ...current, spec });
  };

  const rows = objectTable.map((row) => ({ ...row, label: `${row.kind}: ${row.title}` }));
  test.for(rows.filter(({ verdict }) => verdict === "refused"))(
    "rule 6.7: the API server refuses $label",
    async ({ kind, spec, says }) => {
      const { status, body } = await create(kind, `row-${(serial += 1)}`, spec);
      expect(status, JSON.stringify(body)).toBeGreaterThanOrEqual(400);
      expect((body as KubeObject).message).toMatch(says ?? /Invalid value/);
    },
  );

  test.for(rows.filter(({ verdict }) => verdict !== "refused"))(
    "rules 6.7, 6.8: the API server takes $label ($verdict)",
    async ({ kind, spec }) => {
      const { status, body } = await create(kind, `row-${(serial += 1)}`, spec);
      expect(status, JSON.stringify(body)).toBe(201);
    },
  );

  test.for(KINDS)("the %s with every field set is taken", async (kind) => {
    const text = await readFile(join(examples, `${kind.toLowerCase()}.yaml`), "utf8");
    const { spec } = parse(text) as { spec: unknown };
    expect((await create(kind, "every-field", spec)).status).toBe(201);
  });

  test("a new object's status says that nobody has looked at it yet (kstatus)", async () => {
    const object = await client.must(
      "POST",
      gapuraPath("pricetables", namespace),
      manifest("PriceTable", "fresh", { unit: "USD" }),
    );
    expect(object.status).toMatchObject({
      observedGeneration: -1,
      conditions: [{ type: "Ready", status: "Unknown", reason: "Pending" }],
    });
  });

  test("no default is written into a spec, so that GitOps diffs stay clean", async () => {
    const spec = { unit: "USD", models: [{ model: "m", input: "1", output: "2" }] };
    const object = await client.must(
      "POST",
      gapuraPath("pricetables", namespace),
      manifest("PriceTable", "no-defaults", spec),
    );
    expect(object.spec).toEqual(spec);
  });

  test.for([
    { title: "changed", before: { id: "org_a" }, after: { id: "org_b" } },
    { title: "removed", before: { id: "org_a" }, after: {} },
    { title: "added later", before: {}, after: { id: "org_a" } },
  ])("rule 6.7: an Organization's id cannot be $title", async ({ title, before, after }) => {
    const name = `id-${title.replaceAll(" ", "-")}`;
    expect((await create("Organization", name, before)).status).toBe(201);
    const answer = await replace("Organization", name, after);
    expect(answer.status).toBe(422);
    expect((answer.body as KubeObject).message).toMatch(/id is immutable/);
    expect((await replace("Organization", name, { ...before, displayName: "Other" })).status).toBe(200);
  });

  test("rule 6.7: a grant's amount cannot be changed, another grant can be added", async () => {
    const grants = (...list: object[]) => ({ credits: { grants: list } });
    const first = { name: "first", amount: "10" };
    expect((await create("Organization", "grants", grants(first))).status).toBe(201);
    const answer = await replace("Organization", "grants", grants({ ...first, amount: "11" }));
    expect(answer.status).toBe(422);
    expect((answer.body as KubeObject).message).toMatch(/applied once by its name/);
    expect(
      (await replace("Organization", "grants", grants({ name: "second", amount: "1" }, first))).status,
    ).toBe(200);
  });

  test("an update of the status leaves the spec alone, and the spec's generation counts only changes of it", async () => {
    const path = gapuraPath("pricetables", namespace, "generations");
    const made = await client.must(
      "POST",
      gapuraPath("pricetables", namespace),
      manifest("PriceTable", "generations", { unit: "USD" }),
    );
    await client.must("PUT", `${path}/status`, {
      ...made,
      spec: { unit: "Credit" },
      status: { observedGeneration: 1, conditions: [], models: 3 },
    });
    const after = await client.must("GET", path);
    expect([after.metadata?.generation, after.spec]).toEqual([1, { unit: "USD" }]);
    expect(after.status).toMatchObject({ observedGeneration: 1, models: 3 });
  });

  test.for(KINDS)("%s: short name, category, columns and a message with -o wide", async (kind) => {
    const { plural, shortName, columns } = kinds[kind];
    const list = await client.must("GET", "/apis/gapura.dev/v1alpha1");
    expect(list).toMatchObject({
      resources: expect.arrayContaining([
        expect.objectContaining({
          name: plural,
          shortNames: [shortName],
          categories: ["gapura"],
          namespaced: true,
        }),
        expect.objectContaining({ name: `${plural}/status` }),
      ]),
    });
    const definition = await client.must(
      "GET",
      `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${plural}.gapura.dev`,
    );
    const version = (
      definition.spec as { versions: { additionalPrinterColumns: { name: string; priority?: number }[] }[] }
    ).versions[0];
    expect(version?.additionalPrinterColumns.map(({ name, priority }) => [name, priority ?? 0])).toEqual([
      ...columns.map(({ name }) => [name, 0]),
      ["Ready", 0],
      ["Reason", 0],
      ["Age", 0],
      ["Message", 1],
    ]);
  });

  test("kubectl explains limits, shows them in a column, and names the place of a bad one", async () => {
    const run = await kubectlIn(namespace);
    const limited = (amount: string) => `{apiVersion: gapura.dev/v1alpha1, kind: Organization,
      metadata: {name: limited}, spec: {keyDefaults: {limits: {credits: {amount: "${amount}", per: Month}}}}}`;
    const bad = run(["apply", "-f", "-"], limited("-5"));
    expect([bad.status, bad.stderr]).toEqual([
      1,
      expect.stringContaining("spec.keyDefaults.limits.credits.amount"),
    ]);
    expect(run(["apply", "-f", "-"], limited("50")).status).toBe(0);
    const path = gapuraPath("organizations", namespace, "limited");
    const made = await client.must("GET", path);
    await client.must("PUT", `${path}/status`, {
      ...made,
      status: { observedGeneration: 1, conditions: [], id: "org_limited", limits: "each key 50/Month" },
    });
    const [head = "", row = ""] = run(["get", "organizations", "limited"]).stdout.split("\n");
    expect(row.slice(head.indexOf("LIMITS")), head).toMatch(/^each key 50\/Month /);
    const explained = (field: string) =>
      run(["explain", `organizations.spec.${field}`]).stdout.replaceAll(/\s+/g, " ");
    expect(explained("apiKeys.limits.credits")).toContain("beyond it requests answer 402");
    expect(explained("apiKeys.limits.credits.per")).toContain("by UTC: each day, each Monday");
    expect(explained("apiKeys.expiresAt")).toContain("answers 401");
    expect(explained("notifications")).toContain("one signed message for each threshold, scope and window");
    expect(explained("hold")).toContain("its whole output limit");
  });

  test("server-side apply: lists merge by their keys, each manager owns its items, and what another owns is a conflict", async () => {
    const run = await kubectlIn(namespace);
    const apply = (manager: string, kind: Kind, name: string, spec: unknown) =>
      run(
        ["apply", "--server-side", "--field-manager", manager, "-f", "-"],
        JSON.stringify(manifest(kind, name, spec)),
      );
    const shared: readonly { kind: Kind; one: object; other: object; foreign: object; list: string }[] = [
      {
        kind: "ModelRoute",
        one: {
          limits: { contextTokens: 10, maxOutputTokens: 10 },
          upstreams: [{ name: "one", dialect: "Messages", baseURL: "https://a.example" }],
        },
        other: { upstreams: [{ name: "other", dialect: "Messages", baseURL: "https://b.example" }] },
        foreign: { upstreams: [{ name: "one", dialect: "Messages", baseURL: "https://c.example" }] },
        list: "{.spec.upstreams[*].name}",
      },
      {
        kind: "PriceTable",
        one: { unit: "USD", models: [{ model: "one", input: "1", output: "2" }] },
        other: { unit: "USD", models: [{ model: "other", input: "1", output: "2" }] },
        foreign: { unit: "USD", models: [{ model: "one", input: "3", output: "2" }] },
        list: "{.spec.models[*].model}",
      },
      {
        kind: "Organization",
        one: { apiKeys: [{ name: "one", secretKeyRef: { name: "s", key: "a" } }] },
        other: { apiKeys: [{ name: "other", secretKeyRef: { name: "s", key: "b" } }] },
        foreign: { apiKeys: [{ name: "one", secretKeyRef: { name: "s", key: "c" } }] },
        list: "{.spec.apiKeys[*].name}",
      },
    ];
    for (const { kind, one, other, foreign, list } of shared) {
      const resource = `${kinds[kind].plural}/shared`;
      const names = () => run(["get", resource, "-o", `jsonpath=${list}`]).stdout;
      expect([kind, apply("first", kind, "shared", one).stderr]).toEqual([kind, ""]);
      expect([kind, apply("second", kind, "shared", other).stderr]).toEqual([kind, ""]);
      expect([kind, names()]).toEqual([kind, "one other"]);
      // The same again is no change.
      expect(apply("first", kind, "shared", one).status).toBe(0);
      const path = gapuraPath(kinds[kind].plural, namespace, "shared");
      expect((await client.must("GET", path)).metadata?.generation).toBe(2);
      expect([kind, apply("third", kind, "shared", foreign).stderr]).toEqual([
        kind,
        expect.stringMatching(/conflict with "first": \.spec\.\w+\[\w+="one"\]/),
      ]);
      // What a manager no longer names goes, and nothing else.
      expect(apply("second", kind, "shared", {}).status).toBe(0);
      expect([kind, names()]).toEqual([kind, "one"]);
    }
  });
});

/** kubectl as an admin runs it in a namespace. */
async function kubectlIn(namespace: string) {
  const kubectl = await kubeTool("kubectl");
  return (args: readonly string[], input = "") =>
    spawnSync(kubectl, [...args, "--namespace", namespace], {
      input,
      encoding: "utf8",
      timeout: 30_000,
      env: { PATH: process.env["PATH"], HOME: "/nonexistent", KUBECONFIG: access?.kubeconfig ?? "" },
    });
}
