/** The product with its demo models, started once for all tests of the console (vitest's global set-up). */
import * as fs from "node:fs";
import { join, resolve } from "node:path";
import { inject, vi } from "vitest";
import type { TestProject } from "vitest/node";
import { startProduct, temporaryFolder } from "../integration/product.ts";

/** Organizations: one that calls the demo's models, one without credit, one with very much of everything. */
const names = ["demo", "empty", "many"] as const;
type Name = (typeof names)[number];
export const MANY_MODELS = 1000;
/** Of its thousand models the one that has prices of every sort. */
export const pricedModel = "many-0042";

export interface ConsoleWorld {
  readonly url: string;
  readonly admin: string;
  readonly inference: string;
  readonly databaseUrl: string;
  /** Of the other organizations. */
  readonly keys: Readonly<Record<Name, { readonly admin: string; readonly inference: string }>>;
}

declare module "vitest" {
  export interface ProvidedContext {
    console: ConsoleWorld;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = temporaryFolder();
  const data = join(folder.path, "data");
  const manifests = join(folder.path, "manifests");
  writeManifests(manifests);
  const product = await startProduct({ manifests, data });
  const read = (...path: string[]) => fs.readFileSync(join(data, ...path), "utf8").trim();
  const { databaseUrl } = JSON.parse(read("stores.json")) as { databaseUrl: string };
  const secret = (name: string, file: string) => read("secrets", "default", name, file);
  const keysOf = (name: Name) => ({
    admin: secret(`${name}-admin`, "admin-key"),
    inference: secret(`${name}-key`, "api-key"),
  });
  const keys = { demo: keysOf("demo"), empty: keysOf("empty"), many: keysOf("many") };
  project.provide("console", { url: product.url, ...keys.demo, databaseUrl, keys });
  return async () => {
    await product.stop();
    folder[Symbol.dispose]();
  };
}

const ruledLimits = { credits: { amount: "5000", per: "Month" } };
const priced = {
  tiers: [{ inputOver: 50_000, input: "2", output: "3" }],
  serviceTiers: [{ name: "priority", multiplier: "2" }],
  changes: [{ from: "2099-01-01T00:00:00Z", input: "0.5", output: "1.5" }],
};

function writeManifests(folder: string): void {
  fs.cpSync(resolve(import.meta.dirname, "../../hack/demo"), folder, { recursive: true });
  const demo = join(folder, "organization.yaml");
  const text = fs.readFileSync(demo, "utf8");
  fs.writeFileSync(demo, text.replace("  credits:", '  models: { allow: ["demo*"] }\n  credits:'));
  const models = Array.from({ length: MANY_MODELS }, (_, index) => `many-${String(index).padStart(4, "0")}`);
  const objects = [
    organization("empty", "Nothing left", [], ["demo*"], [{ name: "ruled", limits: ruledLimits }]),
    organization("many", "Very many", [{ name: "welcome", amount: "9000000" }], ["many-*"]),
    {
      kind: "PriceTable",
      metadata: { name: "many" },
      spec: {
        unit: "USD",
        creditsPerUSD: "32",
        models: models.map((model) => ({
          model,
          input: "1",
          output: "2",
          ...(model === pricedModel ? priced : {}),
        })),
      },
    },
    ...models.map((name) => ({
      kind: "ModelRoute",
      metadata: { name },
      spec: {
        limits: { contextTokens: 100_000, maxOutputTokens: 1000 },
        upstreams: [{ name: "local", dialect: "Messages", baseURL: "http://127.0.0.1:9400" }],
        priceTableRef: { name: "many" },
      },
    })),
  ];
  const documents = objects.map((object) => JSON.stringify({ apiVersion: "gapura.dev/v1alpha1", ...object }));
  fs.writeFileSync(join(folder, "many.yaml"), documents.join("\n---\n"));
}

const organization = (
  name: Name,
  displayName: string,
  grants: readonly { readonly name: string; readonly amount: string }[],
  allow: readonly string[],
  projects: readonly object[] = [],
) => ({
  kind: "Organization",
  metadata: { name },
  spec: {
    id: `org_${name}`,
    displayName,
    models: { allow },
    credits: { grants },
    ...(projects.length === 0 ? {} : { projects }),
    apiKeys: [{ name: "default", secretKeyRef: { name: `${name}-key`, key: "api-key" } }],
    adminKeys: [{ name: "root", secretKeyRef: { name: `${name}-admin`, key: "admin-key" } }],
  },
});

export const theWorld = (): ConsoleWorld => inject("console");

/** One request with a key; the answer as JSON. */
export async function api(
  key: string,
  method: string,
  path: string,
  body?: unknown,
): Promise<Record<string, unknown>> {
  const answer = await fetch(`${theWorld().url}${path}`, {
    method,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return (await answer.json()) as Record<string, unknown>;
}

/** One small request to each of the demo's models. */
export async function ask(times = 1): Promise<void> {
  for (let time = 0; time < times; time += 1)
    for (const model of ["demo-messages", "demo-chat", "demo-responses"])
      await api(theWorld().inference, "POST", "/v1/chat/completions", {
        model,
        messages: [{ role: "user", content: `Hello, number ${time}` }],
      });
}

/** Waits until nothing of the demo's organization runs and its reports have all that it was charged. */
export async function booked(): Promise<void> {
  const { admin } = theWorld();
  // The ledger is written a moment after an answer.
  await vi.waitFor(
    async () => {
      const { held, used } = await api(admin, "GET", "/v1/organization/credits");
      const { results } = await api(admin, "GET", "/v1/organizations/cost_report");
      const [all] = results as { readonly credits: string }[];
      if (held !== "0" || all?.credits !== used)
        throw new Error(`${String(used)} used, ${String(held)} held, ${all?.credits} in the report`);
    },
    { timeout: 15_000, interval: 100 },
  );
}

/** A key, a file and a batch that fails, for views that show one of each. */
export async function addOneOfEach(key: object, fileName: string): Promise<void> {
  const { url, admin, inference } = theWorld();
  await api(admin, "POST", "/v1/organizations/api_keys", key);
  const params = { max_tokens: 20, messages: [{ role: "user", content: "Hello" }] };
  await api(inference, "POST", "/v1/messages/batches", {
    requests: [{ custom_id: "bad", params: { ...params, model: "nowhere" } }],
  });
  const form = new FormData();
  form.set("purpose", "user_data");
  form.set("file", new Blob(["x"]), fileName);
  const headers = { authorization: `Bearer ${inference}` };
  await fetch(`${url}/v1/files`, { method: "POST", headers, body: form });
}
