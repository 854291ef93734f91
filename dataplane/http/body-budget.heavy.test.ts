/** Rule 7.2 over HTTP with a hundred large bodies at once, and with bodies of every length. */
import { gzipSync, zstdCompressSync } from "node:zlib";
import { expect, test } from "vitest";
import { startTestServer } from "../../test/fakes/test-server.ts";
import { MiB, answerEmpty, bodyOfLength, json, startCounting } from "../../test/fakes/counted-bodies.ts";
import { ByteBudget } from "../lib/byte-budget.ts";
import { metrics } from "../telemetry/metrics.ts";
import { openBodyBudget } from "./body-budget.ts";
import { limits } from "./limits.ts";
import { readBody } from "./request-body.ts";
import type { Routes } from "./route.ts";

test.each([
  ["gzip", gzipSync],
  ["zstd", zstdCompressSync],
])("a hundred large %s bodies at once never hold more than the budget", async (encoding, compress) => {
  const bodies = openBodyBudget(64 * MiB);
  const held: number[] = [];
  await using server = await startCounting(bodies, async (call) => {
    held.push(bodies.used);
    await new Promise((done) => setTimeout(done, 20));
    return await answerEmpty(call);
  });
  let most = 0;
  const watch = setInterval(() => (most = Math.max(most, bodies.used)), 1);
  const body = compress(bodyOfLength(16 * MiB));
  const statuses = await Promise.all(
    Array.from({ length: 100 }, async () => {
      const headers = { ...json, "content-encoding": encoding };
      const response = await server.fetch("/v1/messages", { method: "POST", body, headers });
      const { error } = (await response.json()) as { error?: { type: string } };
      return [response.status, response.headers.get("retry-after"), error?.type].join(" ");
    }),
  );
  clearInterval(watch);
  expect(new Set(statuses)).toEqual(new Set(["200  ", "429 1 rate_limit_error"]));
  expect(Math.max(most, ...held)).toBeLessThanOrEqual(64 * MiB);
  expect(bodies.used).toBe(0);
  const { values } = await metrics.refused.get();
  expect(values.find(({ labels }) => labels.reason === "organization_bytes")?.value).toBeGreaterThan(0);
});

test("one body larger than the budget is read in an idle process, and refused beside another", async () => {
  const bodies = new ByteBudget(1 * MiB);
  const other = bodies.lease("other");
  await using server = await startCounting(bodies, answerEmpty);
  const ask = async (headers: Record<string, string>, body: Buffer) => {
    const response = await server.fetch("/v1/chat/completions", {
      method: "POST",
      body: body as BodyInit,
      headers: { ...json, ...headers },
    });
    return [response.status, response.headers.get("retry-after")];
  };
  expect(await ask({}, bodyOfLength(20 * MiB))).toEqual([200, null]);
  expect(await ask({ "content-encoding": "gzip" }, gzipSync(bodyOfLength(20 * MiB)))).toEqual([200, null]);
  other.take(1);
  expect(await ask({}, bodyOfLength(20 * MiB))).toEqual([503, "1"]);
  // Its length shows only as it unpacks: by then its organization has more than its quarter.
  expect(await ask({ "content-encoding": "gzip" }, gzipSync(bodyOfLength(20 * MiB)))).toEqual([429, "1"]);
  other.release();
  await expect.poll(() => bodies.used).toBe(0);
  expect(await ask({}, bodyOfLength(20 * MiB))).toEqual([200, null]);
});

test("a body is the same whatever its length and however it comes", async () => {
  const echoing: Routes = (app) => {
    app.post("/v1/echo", { config: { access: "none" } }, async (request) => {
      const body = await readBody(request, limits.inferenceBodyBytes);
      return { length: body.length, sum: body.reduce((sum, byte) => (sum * 31 + byte) % 1_000_003, 7) };
    });
  };
  await using server = await startTestServer([echoing]);
  const expected = (body: Buffer) => ({
    length: body.length,
    sum: body.reduce((sum, byte) => (sum * 31 + byte) % 1_000_003, 7),
  });
  for (const length of [0, 1, 65_536, MiB, MiB + 1, 3 * MiB + 17]) {
    const body = Buffer.from(Array.from({ length }, (_, index) => (index * index) % 251));
    const headers = { "content-type": "application/octet-stream" };
    const announced = await server.fetch("/v1/echo", { method: "POST", body, headers });
    expect(await announced.json()).toEqual(expected(body));
    const zipped = await server.fetch("/v1/echo", {
      method: "POST",
      body: length === 0 ? body : gzipSync(body),
      headers: { ...headers, "content-encoding": "gzip" },
    });
    expect(await zipped.json()).toEqual(expected(body));
  }
});
