/**
 * What docs/kubernetes.md tells people to give to Argo CD and Flux. Argo's health check runs in Redis' Lua, which is
 * of the same version (5.1) as Argo's own, over statuses that the operator would write.
 */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { z } from "zod";
import { kinds, type Kind, KINDS } from "../../operator/api/kinds.ts";
import { type Delivery, Holdings, statusOf } from "../../operator/plan/conditions.ts";
import type { Declared, Verdict } from "../../operator/plan/objects.ts";
import { render } from "../charts/helm.ts";
import { freshRedis, type TestStore } from "./stores.ts";

const root = resolve(import.meta.dirname, "../..");
const page = readFileSync(resolve(root, "docs/kubernetes.md"), "utf8");
/** Every object in the page's YAML blocks. */
const documents = Array.from(page.matchAll(/```yaml\n(.*?)```/gs), (match) => match[1] ?? "").flatMap(
  (text) =>
    parseAllDocuments(text).map(
      (document) => document.toJSON() as { kind: string; spec: Record<string, unknown> },
    ),
);
const settings = z
  .object({ data: z.object({ "resource.customizations": z.string() }) })
  .parse(documents.find(({ kind }) => kind === "ConfigMap")).data["resource.customizations"];
const customizations = z
  .record(z.string(), z.strictObject({ "health.lua": z.string() }))
  .parse(parse(settings));

let store: TestStore;
let redis: Redis;
beforeAll(async () => {
  store = await freshRedis();
  redis = new Redis(store.url);
});
afterAll(async () => {
  await redis?.quit();
  await store?.[Symbol.asyncDispose]();
});

const healthSchema = z.object({
  status: z.enum(["Healthy", "Progressing", "Degraded"]),
  message: z.string(),
});

async function health(object: unknown, kinds = "gapura.dev/*") {
  const script = customizations[kinds]?.["health.lua"] ?? "";
  const text = await redis.eval(
    `local function judge(obj)\n${script}\nend\nreturn cjson.encode(judge(cjson.decode(ARGV[1])))`,
    0,
    JSON.stringify(object),
  );
  return healthSchema.parse(JSON.parse(String(text)));
}

const defaultStatus = (kind: Kind): unknown => {
  const definition: unknown = parse(readFileSync(resolve(root, `crds/${kinds[kind].plural}.yaml`), "utf8"));
  const schema = z.object({
    spec: z.object({
      versions: z.tuple([
        z.object({
          schema: z.object({
            openAPIV3Schema: z.object({
              properties: z.object({ status: z.object({ default: z.unknown() }) }),
            }),
          }),
        }),
      ]),
    }),
  });
  return schema.parse(definition).spec.versions[0].schema.openAPIV3Schema.properties.status.default;
};

describe.each(KINDS)("Argo CD's health of a %s", (kind) => {
  const declared: Declared = {
    kind,
    namespace: "ml",
    name: "x",
    uid: "u",
    generation: 3,
    creationTimestamp: null,
    createdAt: 0,
    spec: {},
    faults: [],
  };
  const pods = (generation: number, rejected: string | null = null): Delivery => ({
    kind: "asked",
    serial: 7,
    pods: [
      {
        pod: "p",
        ready: true,
        status: {
          hash: null,
          serial: 7,
          podUid: "p",
          accepts: [1],
          rejected: rejected === null ? null : { serial: 7, error: rejected },
          objects: [{ kind, namespace: "ml", name: "x", uid: "u", generation, notes: [] }],
        },
      },
    ],
  });
  const objectWith = (delivery: Delivery, verdict: Partial<Verdict> = {}, generation = 3) => {
    const judged = {
      object: declared,
      accepted: [],
      resolved: [],
      serves: 3,
      notes: [],
      facts: {},
      ...verdict,
    };
    const { observedGeneration, conditions } = statusOf(judged, new Holdings(delivery));
    return { metadata: { generation }, status: { observedGeneration, conditions } };
  };

  test.each([
    [
      "just created",
      () => ({ metadata: { generation: 1 }, status: defaultStatus(kind) }),
      "Progressing",
      /not looked/,
    ],
    ["without a status", () => ({ metadata: { generation: 1 } }), "Progressing", /not looked/],
    ["served by every pod", () => objectWith(pods(3)), "Healthy", /^1\/1 pods$/],
    ["edited since", () => objectWith(pods(3), {}, 4), "Progressing", /not looked/],
    ["on its way", () => objectWith(pods(2)), "Progressing", /^0\/1 pods$/],
    ["refused by a pod", () => objectWith(pods(2, "too new")), "Degraded", /too new/],
    [
      "invalid, and served in its last good form",
      () =>
        objectWith(pods(2), {
          accepted: [{ path: "spec.model", reason: "Invalid", message: "is wrong" }],
          serves: 2,
        }),
      "Degraded",
      /is wrong/,
    ],
    [
      "without its Secret",
      () =>
        objectWith(pods(3), { resolved: [{ path: "", reason: "SecretNotFound", message: 'no Secret "a"' }] }),
      "Degraded",
      /no Secret "a"/,
    ],
  ] as const)("%s", async (_title, object, status, message) => {
    expect(await health(object())).toEqual({ status, message: expect.stringMatching(message) as string });
  });
});

// Without a health of Applications Argo CD's waves wait for none.
test.each([
  ["just created", {}, "Progressing", ""],
  ["that was looked at", { status: { health: { status: "Progressing" } } }, "Progressing", ""],
  [
    "of which something is broken",
    { status: { health: { status: "Degraded", message: "no Secret" } } },
    "Degraded",
    "no Secret",
  ],
  ["that is well", { status: { health: { status: "Healthy" } } }, "Healthy", ""],
])("an Application %s", async (_title, object, status, message) => {
  expect(await health(object, "argoproj.io/Application")).toEqual({ status, message });
});

test("the namespace of each Application is made by one of them", () => {
  const applications = documents
    .filter(({ kind }) => kind === "Application")
    .map(({ spec }) =>
      z
        .object({
          destination: z.object({ namespace: z.string() }),
          syncPolicy: z.object({ syncOptions: z.array(z.string()).default([]) }),
        })
        .parse(spec),
    );
  const named = applications.map(({ destination }) => destination.namespace);
  const made = applications
    .filter(({ syncPolicy }) => syncPolicy.syncOptions.includes("CreateNamespace=true"))
    .map(({ destination }) => destination.namespace);
  expect(new Set(named)).toEqual(new Set(made));
});

test("the values in the page's examples render", async () => {
  const valuesOf = (kind: string) =>
    documents
      .filter((document) => document.kind === kind)
      .flatMap(({ spec }) => {
        const source = spec["source"] as { helm?: { valuesObject: object } } | undefined;
        const values = source?.helm?.valuesObject ?? (spec["values"] as object | undefined);
        return values === undefined ? [] : [values];
      });
  const values = [...valuesOf("Application"), ...valuesOf("HelmRelease")];
  expect(values).toHaveLength(2);
  for (const one of values) expect((await render(one)).all("Deployment")).toHaveLength(2);
});
