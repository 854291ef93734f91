import { expect, test } from "vitest";
import { dialects } from "../dialects/dialect.ts";
import { countRequest, countStatement, metrics, registry } from "./metrics.ts";

test("200 models in each dialect make no more series than a scrape can hold", async () => {
  for (const dialect of dialects)
    for (let model = 0; model < 200; model += 1)
      countRequest({ dialect, model: `m${model}`, status: 200, whole: 1, firstByte: 0.5, upstreamWait: 0.4 });
  const text = await registry.metrics();
  const lines = (name: string) => text.split("\n").filter((line) => line.startsWith(name)).length;
  expect(lines("gapura_request_duration_seconds") + lines("gapura_first_byte_seconds")).toBeLessThanOrEqual(
    10_500,
  );
});

test("a statement is counted by its first word, and by no word that somebody made up", async () => {
  const operations = async () => {
    const { values } = await metrics.storeSeconds.get();
    return new Set(values.map(({ labels }) => labels.operation));
  };
  countStatement("\n  SELECT 1", 0.001);
  countStatement("vacuum full", 2);
  countStatement("", 0);
  expect(await operations()).toEqual(new Set(["select", "other"]));
});
