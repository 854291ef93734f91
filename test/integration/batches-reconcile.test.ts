/** What `npm run reconcile` says of batches: nothing while all agrees, and each thing that may be wrong by its name. */
import { sql } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { reconcileBatches, findFaults } from "../../dataplane/batches/reconcile-batches.ts";
import { sweepBatches } from "../../dataplane/batches/retention.ts";
import { text } from "../fakes/upstream/script.ts";
import type { FakeUpstream } from "../fakes/upstream/server.ts";
import { openGround, type Ground } from "./batches-ground.ts";
import { BatchPlane, bodyOf, line } from "./batches-world.ts";
import { makeOrganization } from "./money-world.ts";

let ground: Ground;
let upstream: FakeUpstream;
let plane: BatchPlane;
/** A message batch and a batch of the other form, both ended: one success and one failure each. */
let messages = "";
let chat = "";

beforeAll(async () => {
  ground = await openGround();
  ({ upstream } = ground);
  plane = await BatchPlane.open(ground.stores, { upstreamUrl: upstream.url });
  await makeOrganization(plane.pool, "org_acme", 1_000_000_000n);
  for (const model of ["upstream-messages", "upstream-chat"])
    upstream.model(model, text("fine", { input: 10, cacheRead: 3, output: 5 }));
  const requests = [
    { custom_id: "good", params: bodyOf.messages() },
    { custom_id: "bad", params: {} },
  ];
  messages = String((await plane.json("POST", "/v1/messages/batches", { requests })).body["id"]);
  const made = await plane.json("POST", "/v1/batches", {
    input_file_id: await plane.upload(`${line("good", bodyOf.chat())}\n${line("bad", {})}`),
    endpoint: "/v1/chat/completions",
    completion_window: "24h",
  });
  chat = String(made.body["id"]);
  await plane.ended(`/v1/messages/batches/${messages}`);
  await plane.ended(`/v1/batches/${chat}`);
});
afterAll(async () => {
  await plane.close();
  await ground.close();
});

test("nothing, before and after the results of an ended batch were taken away", async () => {
  expect(await reconcileBatches(plane.pool)).toEqual([]);
  await sweepBatches(plane.context);
  expect(await plane.count(sql.fragment`from batch_items where batch_id = ${chat}`)).toBe(0);
  expect(await reconcileBatches(plane.pool)).toEqual([]);
});

const undo = new Error("undone");
/** What breaks it, and what the line must say. */
const faults: readonly (readonly [string, (id: string) => ReturnType<typeof sql.unsafe>, RegExp])[] = [
  [
    "a success without its row",
    (id) => sql.unsafe`delete from usage where batch_id = ${id}`,
    /request 0 is succeeded and has no usage row/,
  ],
  [
    "a row of a request that waits",
    (id) => sql.unsafe`update batch_items set state = 'waiting' where batch_id = ${id} and number = 0`,
    /request 0 is waiting and has a usage row/,
  ],
  [
    "a row of a request that never ran",
    (id) => sql.unsafe`update batch_items set state = 'canceled' where batch_id = ${id} and number = 0`,
    /request 0 is canceled and has a usage row/,
  ],
  [
    "a result without its line",
    (id) => sql.unsafe`update batch_items set line = null where batch_id = ${id} and number = 1`,
    /request 1 is errored and has no result line/,
  ],
  [
    "a line of a request that waits",
    (id) => sql.unsafe`update batch_items set state = 'waiting' where batch_id = ${id} and number = 1`,
    /request 1 is waiting and has a result line/,
  ],
  [
    "a request charged twice",
    (id) => sql.unsafe`update batch_items set request_id = 'req_other' where batch_id = ${id} and number = 0`,
    /its usage row is of no request of batch msgbatch_/,
  ],
  [
    "a running request that is no worker's",
    (id) => sql.unsafe`
      with unpaid as (delete from usage where batch_id = ${id})
      update batch_items set state = 'running', line = null where batch_id = ${id} and number = 1
    `,
    /request 1 is running and has no worker/,
  ],
  [
    "a finished request that is a worker's",
    (id) => sql.unsafe`update batch_items set worker = 'one' where batch_id = ${id} and number = 0`,
    /request 0 is succeeded and has a worker/,
  ],
  [
    "a row of another organization",
    (id) => sql.unsafe`update usage set organization_id = 'org_narrow' where batch_id = ${id}`,
    /its usage row is of no request of batch/,
  ],
  [
    "a row that says it is of a live request",
    (id) => sql.unsafe`update usage set endpoint = 'messages' where batch_id = ${id}`,
    /its usage row is of no request of batch/,
  ],
  [
    "a request that is not there",
    (id) => sql.unsafe`delete from batch_items where batch_id = ${id} and number = 1`,
    /its counts are not those of its requests/,
  ],
  [
    "a wrong counter",
    (id) => sql.unsafe`update batches set succeeded = 2 where id = ${id}`,
    /its counts are not those of its requests/,
  ],
  [
    "requests that are left where all were taken away",
    (id) => sql.unsafe`update batches set emptied = true where id = ${id}`,
    /msgbatch_\w+: 2 of its requests are left, though it was emptied/,
  ],
  [
    "wrong tokens",
    (id) => sql.unsafe`update batches set cached_tokens = 4 where id = ${id}`,
    /its counts or tokens are not those of its usage rows/,
  ],
];

test.each([
  ["as long as batches are shown, a row of one that is not there", 59, 1],
  ["later on, none: its batch has gone", 61, 0],
] as const)("%s", async (_name, days, found) => {
  await plane.pool
    .transaction(async (transaction) => {
      await transaction.query(sql.unsafe`delete from batch_items where batch_id = ${messages}`);
      await transaction.query(sql.unsafe`delete from batches where id = ${messages}`);
      await transaction.query(sql.unsafe`
        update usage set accepted_at = accepted_at - ${days} * interval '1 day' where batch_id = ${messages}
      `);
      expect(await findFaults(transaction)).toHaveLength(found);
      throw undo;
    })
    .catch((error: unknown) => {
      if (error !== undo) throw error;
    });
});

test.each(faults)("%s", async (_name, breakIt, words) => {
  await plane.pool
    .transaction(async (transaction) => {
      await transaction.query(breakIt(messages));
      // The same reads, inside the transaction that is undone afterwards.
      expect((await findFaults(transaction)).join("\n")).toMatch(words);
      throw undo;
    })
    .catch((error: unknown) => {
      if (error !== undo) throw error;
    });
  expect(await reconcileBatches(plane.pool)).toEqual([]);
});

test("a success without its row is noticed also when the results are gone", async () => {
  await plane.pool.query(sql.unsafe`delete from usage where batch_id = ${chat}`);
  expect(await reconcileBatches(plane.pool)).toEqual([
    `${chat}: its counts or tokens are not those of its usage rows`,
  ]);
});
