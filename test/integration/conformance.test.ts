/** The product keeps the vendors' rules and its own: what `npm run conformance` finds are the deviations that are meant. */
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Client } from "../conformance/client.ts";
import { discover } from "../conformance/discover.ts";
import { run, type Result } from "../conformance/run.ts";
import { checks } from "../conformance/table.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { readKeys, startProduct, temporaryFolder, writeManifests, type Product } from "./product.ts";

const folder = temporaryFolder();
const data = join(folder.path, "data");
let upstream: FakeUpstream;
let product: Product;
beforeAll(async () => {
  upstream = await startUpstream();
  const manifests = join(folder.path, "manifests");
  writeManifests(manifests, upstream.url);
  product = await startProduct({ manifests, data });
});
afterAll(async () => {
  await product?.stop();
  await upstream?.close();
  folder[Symbol.dispose]();
});

/** docs/conformance.md names each with its reason. */
const meant: Readonly<Record<string, RegExp>> = {
  "messages/models-messages (m-messages)": /^MessagesModel\/capabilities\/code_execution must be object/,
  "messages/models-messages (m-chat)": /^MessagesModel\/capabilities\/code_execution must be object/,
  "messages/stop-sequence (m-chat)": /^it ended with "end"$/,
};

/** A client of each dialect before an upstream of its own, and before one of another. */
const ways = [
  "messages m-messages",
  "messages m-chat",
  "chat m-chat",
  "chat m-responses",
  "responses m-responses",
  "responses m-messages",
];

test("relayed and converted, nothing is found but what is meant", { timeout: 240_000 }, async () => {
  const keys = readKeys(data);
  const client = new Client({
    url: product.url,
    key: keys.inference,
    adminKey: keys.admin,
    budgetTokens: 1_000_000,
  });
  const { targets: all, missing } = await discover(client, ["m-messages", "m-chat", "m-responses"]);
  expect(missing).toEqual([]);
  expect(all).toHaveLength(9);
  const targets = all.filter(({ dialect, model }) => ways.includes(`${dialect} ${model}`));
  const results: Result[] = await run({
    client,
    targets,
    checks,
    adminKey: keys.admin,
    upstream: () => Promise.resolve(upstream.requests),
  });
  const found = results.flatMap(({ id, target, faults }) =>
    faults
      .filter(({ text }) => meant[`${id} (${target.model})`]?.test(text) !== true)
      .map(({ text }) => `${id} (${target.model}): ${text}`),
  );
  expect(found).toEqual([]);
  expect(results.filter(({ outcome }) => outcome === "passed").length).toBeGreaterThan(300);
  const skipped = results.filter(({ outcome }) => outcome === "skipped");
  expect(skipped.map(({ id, target, reason }) => `${id} (${target.model}): ${reason}`)).toEqual([]);
});
