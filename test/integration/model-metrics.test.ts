/** The GenAI metrics of model calls (rule 14.3), read where they are exported to. */
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { sql } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { readEnvironment } from "../../dataplane/environment.ts";
import { startTelemetry } from "../../dataplane/telemetry/start.ts";
import { startCollector } from "../fakes/otlp-collector.ts";
import { text } from "../fakes/upstream/script.ts";
import { lookingUp, startToolsWorld, type ToolsWorld } from "./tools-world.ts";

/** Of a prompt, 4 were in the provider's cache. */
const USAGE = { input: 11, cacheRead: 4, output: 7 };
let world: ToolsWorld;
beforeAll(async () => {
  world = await startToolsWorld({
    script: (request) => {
      if (request.question === "fail") return { error: { status: 400, message: "no" } };
      return request.tools.length === 0 ? text("fine", USAGE) : lookingUp(request);
    },
  });
});
afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

const environment = (variables: Readonly<Record<string, string>>) =>
  readEnvironment({
    DATABASE_URL: "postgres://x",
    REDIS_URL: "redis://x",
    GAPURA_CONFIG_DIR: "/x",
    POD_UID: "pod-1",
    ...variables,
  });

async function ask(model: string, content: string, more: object = {}): Promise<number> {
  const body = { model, max_tokens: 100, messages: [{ role: "user", content }], ...more };
  const response = await world.send("messages", body);
  await response.text();
  return response.status;
}

async function storedTokens(model: string) {
  await world.plane.drained();
  return await world.plane.pool.one(sql.type(z.object({ input: z.number(), output: z.number() }))`
    select
      coalesce(sum(
        input_tokens + cache_read_tokens + cache_write_5m_tokens + cache_write_1h_tokens
      ), 0)::integer as input,
      coalesce(sum(output_tokens), 0)::integer as output
    from usage where model = ${model}
  `);
}

test("durations and tokens of all calls, without traces: every path, an iteration each, and the ledger's sums", async () => {
  await using collector = await startCollector();
  const stop = await startTelemetry(
    environment({ OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/`, OTEL_TRACES_EXPORTER: "none" }),
    "1.2.3",
  );
  for (const stream of [false, true]) {
    expect(await ask("m-messages", "hello", { stream })).toBe(200);
    expect(await ask("m-chat", "hello", { stream })).toBe(200);
  }
  const tools = [{ type: "web_search_20250305", name: "web_search" }];
  expect(await ask("m-chat", "search for gates", { tools })).toBe(200);
  expect(await ask("m-messages", "fail")).toBe(400);
  await stop();

  expect(collector.spans).toEqual([]);
  const named = (name: string) => collector.histograms.filter((one) => one.name === name);
  const durations = named("gen_ai.client.operation.duration");
  const counts = durations.map(({ attributes, count }) => [attributes, count] as const);
  const of = (model: string, provider: string, more: object = {}) => ({
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": provider,
    "gen_ai.request.model": model,
    ...more,
  });
  expect(new Map(counts.map(([attributes, count]) => [JSON.stringify(attributes), count]))).toEqual(
    new Map([
      [JSON.stringify(of("m-messages", "anthropic")), 2],
      // Two plain ones and the loop's two iterations.
      [JSON.stringify(of("m-chat", "openai")), 4],
      [JSON.stringify(of("m-messages", "anthropic", { "error.type": "invalid_request" })), 1],
    ]),
  );
  for (const { unit, sum, count, bounds, resource } of durations) {
    expect({ unit, first: bounds[0], last: bounds.at(-1) }).toEqual({ unit: "s", first: 0.01, last: 81.92 });
    expect(sum / count).toBeLessThan(60);
    expect(sum).toBeGreaterThan(0);
    expect(resource).toMatchObject({
      "service.name": "gapura",
      "service.instance.id": "pod-1",
      "service.version": "1.2.3",
    });
  }

  const tokens = named("gen_ai.client.token.usage");
  expect(new Set(tokens.map(({ unit, bounds }) => `${unit} ${bounds[0]} ${bounds.at(-1)}`))).toEqual(
    new Set(["{token} 1 67108864"]),
  );
  const sums = (model: string) =>
    Object.fromEntries(
      tokens
        .filter(({ attributes }) => attributes["gen_ai.request.model"] === model)
        .map(({ attributes, sum }) => [attributes["gen_ai.token.type"], sum]),
    );
  // Another drain may be under way, and its rows not there yet.
  for (const model of ["m-messages", "m-chat"])
    await expect.poll(() => storedTokens(model), { timeout: 10_000 }).toEqual(sums(model));
});

test("an endpoint of its own is used as it stands, and `none` switches a signal off", async () => {
  await using collector = await startCollector();
  const own = { OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: `${collector.url}/v1/metrics` };
  const stop = await startTelemetry(environment(own), "1.2.3");
  expect(await ask("m-messages", "hello")).toBe(200);
  await stop();
  expect(collector.histograms).not.toEqual([]);

  const before = collector.bodies.length;
  const stopNothing = await startTelemetry(environment({ ...own, OTEL_METRICS_EXPORTER: "none" }), "1.2.3");
  expect(await ask("m-messages", "hello")).toBe(200);
  await stopNothing();
  expect(collector.bodies).toHaveLength(before);
});

test("a collector that accepts and never answers holds up neither requests nor the end", async () => {
  const silent = createServer(() => {}).listen(0, "127.0.0.1");
  await once(silent, "listening");
  try {
    const { port } = silent.address() as AddressInfo;
    const stop = await startTelemetry(
      environment({
        OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}`,
        OTEL_TRACES_EXPORTER: "none",
        OTEL_METRIC_EXPORT_INTERVAL: "1000",
      }),
      "1.2.3",
    );
    expect(await ask("m-messages", "hello")).toBe(200);
    const startedAt = performance.now();
    await stop();
    expect(performance.now() - startedAt).toBeLessThan(15_000);
  } finally {
    silent.close();
  }
});
