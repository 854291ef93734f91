/** The product keeps the vendors' rules and its own: what `npm run conformance` finds are the deviations that are meant. */
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { dialects } from "../../dataplane/dialects/dialect.ts";
import { Client } from "../conformance/client.ts";
import { discover } from "../conformance/discover.ts";
import { run } from "../conformance/run.ts";
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
  const newClient = () =>
    new Client({ url: product.url, key: keys.inference, adminKey: keys.admin, budgetTokens: 1_000_000 });
  const { targets: all, missing } = await discover(newClient(), ["m-messages", "m-chat", "m-responses"]);
  expect(missing).toEqual([]);
  expect(all).toHaveLength(9);
  const targets = all.filter(({ dialect, model }) => ways.includes(`${dialect} ${model}`));
  // The dialects at once: half of the checks' time is waiting for what must not come.
  const results = await Promise.all(
    dialects.map((dialect) =>
      run({
        client: newClient(),
        targets: targets.filter((target) => target.dialect === dialect),
        checks,
        adminKey: keys.admin,
        upstream: () => Promise.resolve(upstream.requests),
      }),
    ),
  ).then((lists) => lists.flat());
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
