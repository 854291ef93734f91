/** Batches of an organization that is suspended or deleted, whose keys are deleted, and whose files are its own. */
import { sql } from "slonik";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { measureQueue } from "../../dataplane/batches/worker/queue-depth.ts";
import { metrics } from "../../dataplane/telemetry/metrics.ts";
import { text } from "../fakes/upstream/script.ts";
import type { FakeUpstream } from "../fakes/upstream/server.ts";
import { openGround, openSmallPlane, poor, slow, type Ground } from "./batches-ground.ts";
import { bodyOf, line, type BatchPlane } from "./batches-world.ts";

let ground: Ground;
let upstream: FakeUpstream;
let plane: BatchPlane;
let skew = 0;
const clock = { now: () => Date.now() + skew };

beforeAll(async () => {
  ground = await openGround();
  ({ upstream } = ground);
  plane = await openSmallPlane(ground, clock);
});
afterAll(async () => {
  await plane.close();
  await ground.close();
});
beforeEach(() => {
  upstream.reset();
  skew = 0;
});

const begun = (n = 1) => upstream.arrived(n, 10_000);

/** The values of a metric by state. */
async function gauge(metric: (typeof metrics)["batchItems"]): Promise<Record<string, number>> {
  const { values } = await metric.get();
  return Object.fromEntries(values.map(({ labels, value }) => [String(labels.state), value]));
}

describe("what workers do with an organization", () => {
  test.each([
    ["suspended", sql.fragment`suspended = true`],
    ["deleted", sql.fragment`deleted_at = now()`],
  ])("rule 4.5: items of a %s one wait, and show as waiting", async (_how, gone) => {
    upstream.model("upstream-messages", text("fine"));
    await plane.pool.query(sql.unsafe`update organizations set ${gone} where id = 'org_acme'`);
    const path = await plane.createMessages(3);
    await new Promise((done) => setTimeout(done, 300));
    expect(upstream.requests).toHaveLength(0);
    skew = 60_000;
    await measureQueue(plane.context);
    expect(await gauge(metrics.batchItems)).toMatchObject({ waiting: 3, running: 0 });
    expect((await gauge(metrics.batchAge))["waiting"]).toBeGreaterThan(59);
    await plane.pool.query(
      sql.unsafe`update organizations set suspended = false, deleted_at = null where id = 'org_acme'`,
    );
    await plane.ended(path);
    await measureQueue(plane.context);
    expect(await gauge(metrics.batchItems)).toMatchObject({ waiting: 0, running: 0 });
  });

  test("rule 4.5: a deleted key stops nothing", async () => {
    upstream.model("upstream-messages", slow);
    const path = await plane.createMessages(6);
    await begun(2);
    // As deleting a key does: holds under the old epoch are refused from now on.
    await plane.pool.query(
      sql.unsafe`update organizations set key_epoch = key_epoch + 1 where id = 'org_acme'`,
    );
    await plane.plane.holds.refresh(["org_acme"]);
    expect(await plane.ended(path)).toMatchObject({ request_counts: { succeeded: 6 } });
  });

  test("rule 7.2: files are put into requests only while live requests and other items leave room", async () => {
    upstream.model("upstream-messages", text("fine"));
    const { bodies } = plane.context;
    const live = bodies.lease("org_live");
    live.take(bodies.total / 4);
    const others = [live, await bodies.whenRoom("org_other", bodies.total / 4)];
    const waits = vi.spyOn(bodies, "whenRoom");
    const id = await plane.upload("what the file says", "in.txt", {}, "text/plain");
    const source = { type: "file", file_id: id };
    const messages = [{ role: "user", content: [{ type: "document", source }] }];
    const requests = [
      { custom_id: "with", params: { ...bodyOf.messages(), messages } },
      { custom_id: "without", params: bodyOf.messages() },
    ];
    const { body } = await plane.json("POST", "/v1/messages/batches", { requests });
    await expect.poll(() => waits.mock.calls.length).toBe(1);
    await expect.poll(() => upstream.requests.length).toBe(1);
    waits.mockRestore();
    expect(upstream.requests[0]?.text).not.toContain("what the file says");
    for (const lease of others) lease.release();
    const path = `/v1/messages/batches/${String(body["id"])}`;
    expect(await plane.ended(path)).toMatchObject({ request_counts: { succeeded: 2 } });
    expect(bodies.used).toBe(0);
  });

  test("rule 7.2: the lines of an input count while they are read, as the requests of a body do", async () => {
    upstream.model("upstream-chat", text("fine"));
    const { bodies } = plane.context;
    const [begins, held] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    // Nothing is stored meanwhile.
    await plane.pool.query(sql.unsafe`
      create function wait_to_store() returns trigger language plpgsql as
      $$ begin perform pg_advisory_xact_lock(4242); return new; end $$
    `);
    await plane.pool.query(sql.unsafe`
      create trigger wait_to_store before insert on batch_items for each row execute function wait_to_store()
    `);
    const locking = plane.pool.transaction(async (transaction) => {
      await transaction.query(sql.unsafe`select pg_advisory_xact_lock(4242)`);
      begins.resolve();
      await held.promise;
    });
    await begins.promise;
    const long = bodyOf.chat("x".repeat(5 * 1024 * 1024));
    const path = await plane.createFile([line("a", long), line("b", bodyOf.chat())].join("\n"));
    const used = () => bodies.used;
    await expect.poll(used).toBeGreaterThan(5 * 1024 * 1024);
    held.resolve();
    await locking;
    expect(await plane.ended(path)).toMatchObject({ request_counts: { total: 2, completed: 2 } });
    expect(used()).toBe(0);
    await plane.pool.query(sql.unsafe`drop function wait_to_store cascade`);
  });

  test("rule 7.2: an answer counts until it is stored, however long Postgres does not take it", async () => {
    upstream.model("upstream-messages", text("A".repeat(100_000)));
    const { bodies } = plane.context;
    const held = Promise.withResolvers<void>();
    const [begins, ends] = [Promise.withResolvers<void>(), held.promise];
    const locking = plane.pool.transaction(async (transaction) => {
      await transaction.query(sql.unsafe`select from accounts where organization_id = 'org_acme' for update`);
      begins.resolve();
      await ends;
    });
    await begins.promise;
    const path = await plane.createMessages(3);
    await expect.poll(() => bodies.used).toBeGreaterThan(200_000);
    held.resolve();
    await locking;
    await plane.ended(path);
    expect(bodies.used).toBe(0);
  });

  test.each([
    ["whose file", "cancelled", { canceled: 1 }],
    ["that is large itself", "cancelled", { canceled: 1 }],
    ["that is large itself", "overdue", { expired: 1 }],
  ])(
    "rule 4.5: a request %s waits for room does not begin once its batch is %s",
    async (what, how, counts) => {
      upstream.model("upstream-messages", text("fine"));
      const { bodies } = plane.context;
      const [live, other] = [bodies.lease("org_live"), await bodies.whenRoom("org_other", 1)];
      live.take(bodies.total / 2);
      const waits = vi.spyOn(bodies, "whenRoom");
      const id = await plane.upload("what the file says", "in.txt", {}, "text/plain");
      const content = [{ type: "document", source: { type: "file", file_id: id } }];
      const params =
        what === "whose file"
          ? { ...bodyOf.messages(), messages: [{ role: "user", content }] }
          : bodyOf.messages("x".repeat(300 * 1024));
      const { body } = await plane.json("POST", "/v1/messages/batches", {
        requests: [{ custom_id: "a", params }],
      });
      const path = `/v1/messages/batches/${String(body["id"])}`;
      await expect.poll(() => waits.mock.calls.length).toBe(1);
      waits.mockRestore();
      if (how === "cancelled") await plane.json("POST", `${path}/cancel`);
      else skew = 25 * 3_600_000;
      live.release();
      other.release();
      expect(await plane.ended(path)).toMatchObject({ request_counts: { succeeded: 0, ...counts } });
      expect([upstream.requests.length, bodies.used]).toEqual([0, 0]);
    },
  );

  test("rule 4.17: its own files are put into requests; others are an error of that request alone", async () => {
    upstream.model("upstream-messages", text("fine"));
    const params = (id: string) => ({
      ...bodyOf.messages(),
      messages: [
        { role: "user", content: [{ type: "document", source: { type: "file", file_id: id } }] as object[] },
      ],
    });
    const own = await plane.upload("what the file says", "in.txt", {}, "text/plain");
    const foreign = await plane.upload("what the file says", "in.txt", poor, "text/plain");
    const requests = Object.entries({ own, foreign, unknown: "file_unknown" }).map(([name, id]) => ({
      custom_id: name,
      params: params(id),
    }));
    const hosted = { role: "user", content: [{ type: "container_upload", file_id: own }] };
    requests.push({ custom_id: "hosted", params: { ...params(own), messages: [hosted] } });
    const path = `/v1/messages/batches/${String((await plane.json("POST", "/v1/messages/batches", { requests })).body["id"])}`;
    await plane.ended(path);
    const invalid = {
      result: { type: "errored", error: { error: { details: { error_code: "invalid_request" } } } },
    };
    expect(await plane.lines(`${path}/results`)).toMatchObject([
      { custom_id: "own", result: { type: "succeeded" } },
      { custom_id: "foreign", ...invalid },
      { custom_id: "unknown", ...invalid },
      {
        custom_id: "hosted",
        result: { type: "errored", error: { error: { details: { error_code: "unsupported_content" } } } },
      },
    ]);
    expect(upstream.requests).toHaveLength(1);
  });
});
