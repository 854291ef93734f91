/** Rule 7.2 over HTTP with a hundred large bodies at once. */
import { gzipSync, zstdCompressSync } from "node:zlib";
import { expect, test } from "vitest";
import { MiB, answerEmpty, bodyOfLength, json, startCounting } from "../../test/fakes/counted-bodies.ts";
import { metrics } from "../telemetry/metrics.ts";
import { openBodyBudget } from "./body-budget.ts";

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
