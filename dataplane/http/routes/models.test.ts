import { setImmediate as nextTurn } from "node:timers/promises";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { describe, expect, test } from "vitest";
import {
  sampleKeys,
  sampleRoute,
  sampleRouting,
  sampleSnapshot,
  sampleSource,
} from "../../../test/fakes/sample-snapshot.ts";
import { startTestServer } from "../../../test/fakes/test-server.ts";
import type { Policy } from "../../config/schema.ts";
import { ByteBudget } from "../../lib/byte-budget.ts";
import type { Preflight } from "../../billing/holds/preflight.ts";
import type { Principal } from "../../identity/principal.ts";
import { SnapshotDirectory } from "../../../test/fakes/snapshot-directory.ts";
import { modelRoutes } from "./models.ts";

const version = { "anthropic-version": "2023-06-01" };
const policy: Policy = {
  source: sampleSource("ToolPolicy", "default"),
  webSearch: { engine: { type: "searxng", baseUrl: "http://x", credential: null }, timeoutMs: 1 },
  webFetch: { timeoutMs: 1, maxBytes: 1, cacheTtlMs: 0, allowCidrs: [], allowPorts: [], proxy: null },
  xSearch: { engine: null, timeoutMs: 1 },
  callsPerMinute: 60,
  iterations: 8,
  parallelCalls: 4,
};

async function get(path: string, headers: Record<string, string> = {}, routing = sampleRouting(1)) {
  const snapshot = sampleSnapshot(routing);
  await using server = await startTestServer([modelRoutes], { snapshot: () => snapshot });
  const response = await server.fetch(path, { headers });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

/** A member of the sample organization, whose project has these models. */
const member = (models?: readonly string[]): Principal => ({
  kind: "inference",
  keyId: `usr_${"1".repeat(24)}`,
  keyName: "",
  organizationId: sampleRouting(1).organizations[0]?.id ?? "",
  projectId: "proj_1",
  keyEpoch: 0,
  expiresAt: null,
  limits: models === undefined ? [] : [{ kind: "project", id: "proj_1", limits: { models: [...models] } }],
});

test("rule 9.3: a person whose limits may hide models is looked up again, any other is not", async () => {
  const routes = ["model-0", "model-1"].map((model) => sampleRoute(model));
  const snapshot = sampleSnapshot(sampleRouting(1, { routes }));
  let remembered = member(["model-0"]);
  let asked = 0;
  const directory = new SnapshotDirectory(() => snapshot);
  directory.findAgain = async () => {
    asked += 1;
    return member(["model-*"]);
  };
  const services = { directory, people: { find: () => remembered } };
  await using server = await startTestServer([modelRoutes], { snapshot: () => snapshot, services });
  const ask = (path: string) => server.fetch(path, { headers: { authorization: "Bearer a.b.c" } });
  const list = async () => ((await (await ask("/v1/models")).json()) as { data: { id: string }[] }).data;
  expect((await list()).map(({ id }) => id)).toEqual(["model-0", "model-1"]);
  expect((await ask("/v1/models/model-1")).status).toBe(200);
  expect(asked).toBe(2);
  remembered = member();
  expect(await list()).toHaveLength(2);
  expect(asked).toBe(2);
});

describe("the list", () => {
  test("is in OpenAI style by default and in Messages style with a version header (service.md, Versioning)", async () => {
    await expect(JSON.stringify(await get("/v1/models"), null, 1)).toMatchFileSnapshot(
      "../../../test/golden/http/models-openai.json",
    );
    await expect(JSON.stringify(await get("/v1/models", version), null, 1)).toMatchFileSnapshot(
      "../../../test/golden/http/models-messages.json",
    );
    const neutral = await get("/v1/models", { "vendor-version": "anything" });
    expect(neutral).toEqual(await get("/v1/models", version));
  });

  test("a long one counts among the bytes of bodies until it is out, and needs room there (rule 7.2)", async () => {
    const bodies = new ByteBudget(256 * 1024);
    const routes = Array.from({ length: 300 }, (_, n) => sampleRoute(`model-${n}`));
    const snapshot = sampleSnapshot(sampleRouting(1, { routes }));
    await using server = await startTestServer([modelRoutes], {
      snapshot: () => snapshot,
      services: { bodies },
    });
    expect((await server.fetch("/v1/models")).status).toBe(200);
    await expect.poll(() => bodies.used).toBe(0);
    const other = bodies.lease("org_other");
    other.count(1);
    expect((await server.fetch("/v1/models")).status).toBe(429);
    other.count(200 * 1024);
    expect((await server.fetch("/v1/models")).status).toBe(503);
    expect((await server.fetch("/v1/models?limit=20")).status).toBe(200);
    other.release();
  });

  test("many that may go on at once are made one after another, with turns for others in between (rule 7.3)", async () => {
    const { promise: judged, resolve: goOn } = Promise.withResolvers<void>();
    let asked = 0;
    const free = () => {
      asked += 1;
      return judged;
    };
    let made = 0;
    const clock = { now: () => (made += 1) };
    await using server = await startTestServer([modelRoutes], {
      services: { clock, preflight: { free, freeAtOnce: () => 1_000 } as unknown as Preflight },
    });
    const lists = Array.from({ length: 30 }, () => server.fetch("/v1/models"));
    await expect.poll(() => asked).toBe(30);
    const before = made;
    goOn();
    await nextTurn();
    await nextTurn();
    expect(made - before).toBeLessThan(5);
    for (const { status } of await Promise.all(lists)) expect(status).toBe(200);
  });

  test("an organization sees only what it may use, and aliases are not listed (rule 1.17)", async () => {
    const narrow = { authorization: `Bearer ${sampleKeys.narrow}` };
    expect((await get("/v1/models", narrow)).body).toMatchObject({
      data: [{ id: "alpha" }],
      has_more: false,
    });
    expect((await get("/v1/models/beta", narrow)).status).toBe(404);
    expect((await get("/v1/models/alpha-latest", narrow)).body).toMatchObject({ id: "alpha" });
  });

  test("without a limit OpenAI style holds every model, because its SDK never asks for more", async () => {
    const routes = Array.from({ length: 150 }, (_, n) => sampleRoute(`model-${n}`));
    const routing = sampleRouting(1, { routes });
    expect((await get("/v1/models", {}, routing)).body).toMatchObject({
      data: { length: 150 },
      has_more: false,
    });
    expect((await get("/v1/models", version, routing)).body).toMatchObject({
      data: { length: 20 },
      has_more: true,
    });
  });

  test("a bad limit or cursor is 400 that names it, in the path's style", async () => {
    const { status, body } = await get("/v1/models?limit=0");
    expect(status).toBe(400);
    expect(body).toMatchObject({ type: "error", error: { param: "limit" } });
    expect((await get("/v1/models?after_id=nobody", version)).status).toBe(400);
  });
});

describe("one model", () => {
  test("ids with a slash, encoded or not, aliases, and the [1m] suffix are found", async () => {
    for (const path of ["vendor/gamma", "vendor%2Fgamma"]) {
      expect((await get(`/v1/models/${path}`)).body).toMatchObject({ id: "vendor/gamma", object: "model" });
    }
    expect((await get("/v1/models/alpha-latest", version)).body).toMatchObject({
      id: "alpha",
      type: "model",
    });
    expect((await get("/v1/models/alpha%5B1m%5D")).body).toMatchObject({ id: "alpha" });
  });

  test("an unknown one is 404 in the words that Claude Code knows", async () => {
    const { status, body } = await get("/v1/models/nobody", version);
    expect(status).toBe(404);
    expect(body).toMatchObject({
      type: "error",
      error: { type: "not_found_error", code: "model_not_found", message: "model: nobody" },
    });
  });

  test("names like built-in properties are unknown models", async () => {
    for (const name of ["__proto__", "constructor", "toString"]) {
      expect((await get(`/v1/models/${name}`)).status).toBe(404);
    }
  });

  test("capabilities say which server tools would run (service.md, Model)", async () => {
    const routes = [
      sampleRoute("tools", { toolPolicy: "default/default" }),
      sampleRoute("plain", {
        toolPolicy: "default/default",
        capabilities: { ...sampleRoute("x").capabilities, toolCalling: false },
      }),
      sampleRoute("none"),
    ];
    const routing = sampleRouting(1, { routes, policies: { "default/default": policy } });
    const flags = async (model: string) => {
      const { capabilities } = (await get(`/v1/models/${model}`, {}, routing)).body as {
        capabilities: Record<string, { supported: boolean }>;
      };
      expect([capabilities["code_execution"], capabilities["skills"]]).toEqual([false, false]);
      return ["web_search", "web_fetch", "x_search"].map((name) => capabilities[name]?.supported);
    };
    expect(await flags("tools")).toEqual([true, true, false]);
    expect(await flags("plain")).toEqual([false, false, false]);
    expect(await flags("none")).toEqual([false, false, false]);
  });
});

test("both official SDKs list every model and retrieve one", async () => {
  const routes = Array.from({ length: 45 }, (_, n) => sampleRoute(`model-${n}`));
  const snapshot = sampleSnapshot(sampleRouting(1, { routes }));
  await using server = await startTestServer([modelRoutes], { snapshot: () => snapshot });
  const openai = new OpenAI({ apiKey: sampleKeys.inference, baseURL: `${server.url}/v1` });
  const listed: string[] = [];
  for await (const { id } of openai.models.list()) listed.push(id);
  expect(listed.sort()).toEqual(routes.map(({ model }) => model).sort());
  expect((await openai.models.retrieve("model-7")).id).toBe("model-7");
  const anthropic = new Anthropic({ apiKey: sampleKeys.inference, baseURL: server.url });
  const paged: string[] = [];
  for await (const { id } of anthropic.models.list()) paged.push(id);
  expect(paged.sort()).toEqual(routes.map(({ model }) => model).sort());
  expect((await anthropic.models.retrieve("model-7")).display_name).toBe("model-7");
});
