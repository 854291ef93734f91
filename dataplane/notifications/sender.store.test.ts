/** Sending what crossed a threshold (rule 9.8) to real receivers: one message id each, and none holds up another. */
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { pino } from "pino";
import { sql, type DatabasePool } from "slonik";
import { Webhook } from "standardwebhooks";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { z } from "zod";
import { sampleOrganization, sampleRouting, sampleSnapshot } from "../../test/fakes/sample-snapshot.ts";
import { DirectoryWorld } from "../../test/integration/directory-world.ts";
import { anewText } from "../billing/scopes.ts";
import type { Notification } from "../config/schema.ts";
import { DAY_MS, systemClock } from "../lib/clock.ts";
import type { Resolver } from "../tools/url-guard/resolver.ts";
import { claimDeliveries, refusedDestinations } from "./deliveries.ts";
import { NotificationSender, pauseAfter, type SenderOptions } from "./sender.ts";

const SECRET = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;

interface Came {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}
let receiver: Server;
let port = 0;
const came: Came[] = [];
/** What becomes of a request, by its path. */
const answers: Record<string, (response: ServerResponse) => void> = {
  "/good": (response) => response.writeHead(204).end(),
  "/fails": (response) => response.writeHead(500).end("no"),
  "/redirects": (response) => response.writeHead(302, { location: "/good" }).end(),
  "/hangs": () => {},
  "/slow": (response) => void setTimeout(() => response.writeHead(204).end(), slowMs).unref(),
  "/endless": (response) => {
    response.writeHead(200);
    response.write("x".repeat(100_000));
  },
};
/** How long `/slow` takes: longer than a try may, however late a busy machine cuts it. */
let slowMs = 60_000;
let world: DirectoryWorld;
let pool: DatabasePool;
beforeAll(async () => {
  world = await DirectoryWorld.open();
  ({ pool } = world);
  receiver = createServer((incoming, response) => {
    let body = "";
    incoming.setEncoding("utf8").on("data", (piece: string) => (body += piece));
    incoming.on("end", () => {
      const { url: path = "", headers } = incoming;
      came.push({ path, headers, body });
      answers[path]?.(response);
    });
  });
  receiver.listen(0, "127.0.0.1");
  await once(receiver, "listening");
  ({ port } = receiver.address() as AddressInfo);
});
afterAll(async () => {
  receiver.closeAllConnections();
  receiver.close();
  await world[Symbol.asyncDispose]();
});
beforeEach(async () => {
  came.length = 0;
  await pool.query(sql.unsafe`truncate threshold_messages, webhook_deliveries`);
});
const senders: NotificationSender[] = [];
afterEach(async () => {
  await Promise.all(senders.splice(0).map((sender) => sender.stop()));
});

const url = (path: string) => `http://127.0.0.1:${port}${path}`;
const inside = { allowCidrs: ["127.0.0.0/8"] };
const told = (path: string, more: Partial<Notification> = {}): Notification => ({
  url: url(path),
  credential: "ns/hooks/secret",
  thresholds: [50],
  ...inside,
  allowPorts: [port],
  ...more,
});

/** A pod whose snapshot says these notifications of these organizations. */
function pod(
  notifications: Readonly<Record<string, readonly Notification[]>>,
  resolver?: Resolver,
  store: DatabasePool = pool,
  secret = SECRET,
  more: Partial<Pick<SenderOptions, "log" | "snapshot" | "timeoutMs">> = {},
) {
  const organizations = Object.entries(notifications).map(([id, list]) =>
    sampleOrganization(id, { notifications: [...list] }),
  );
  const snapshot = sampleSnapshot(sampleRouting(1, { organizations }), { "ns/hooks/secret": secret });
  const sender = new NotificationSender({
    pool: store,
    clock: systemClock,
    log: pino({ level: "silent" }),
    snapshot: () => snapshot,
    random: () => 0,
    resolver: resolver ?? { resolve: async () => [] },
    insideResolver: resolver ?? { resolve: async () => [] },
    timeoutMs: 400,
    lookMs: 20,
    ...more,
  });
  senders.push(sender);
  sender.start();
  return sender;
}

const TODAY = Math.floor(Date.now() / DAY_MS);
let made = 0;
async function crossed(organizationId: string, urls: readonly string[]): Promise<string> {
  const id = await pool.oneFirst(sql.type(z.object({ id: z.string() }))`
    insert into threshold_messages (
      organization_id, scope, scope_id, per, from_day, to_day, threshold, amount_micros, spent_micros
    )
    values (${organizationId}, 'key', ${`apikey_${(made += 1)}`}, 'day', ${TODAY}, ${TODAY + 1}, 50, 1000000, 500001)
    returning id
  `);
  for (const one of urls)
    await pool.query(sql.unsafe`
      insert into webhook_deliveries (message_id, organization_id, url) values (${id}, ${organizationId}, ${one})
    `);
  return id;
}
const state = async () =>
  Object.fromEntries(
    (
      await pool.any(
        sql.type(
          z.object({
            url: z.string(),
            ended: z.boolean(),
            failure: z.string().nullable(),
            tries: z.number(),
          }),
        )`select url, ended_at is not null as ended, failure, tries from webhook_deliveries`,
      )
    ).map(({ url: one, ended, failure, tries }) => [new URL(one).pathname, { ended, failure, tries }]),
  );
/** As if the pauses were over, and what failed before were forgotten. */
const hurry = () =>
  pool.query(
    sql.unsafe`update webhook_deliveries set next_at = clock_timestamp(), failure = null where ended_at is null`,
  );

test("a message is signed as Standard Webhooks says, and sent once", async () => {
  const id = await crossed("org_a", [url("/good")]);
  pod({ org_a: [told("/good")] });
  pod({ org_a: [told("/good")] });
  await expect.poll(state).toEqual({ "/good": { ended: true, failure: null, tries: 1 } });
  await hurry();
  // A pod has looked again when this one has come.
  const next = await crossed("org_a", [url("/good")]);
  await expect.poll(() => came.map(({ headers }) => headers["webhook-id"])).toEqual([id, next]);
  const [message] = came;
  expect(message?.headers["webhook-id"]).toBe(id);
  expect(new Webhook(SECRET).verify(message?.body ?? "", message?.headers as Record<string, string>)).toEqual(
    {
      type: "credit.threshold",
      timestamp: expect.stringMatching(/^\d{4}-.*Z$/),
      data: {
        organization_id: "org_a",
        scope: "key",
        id: expect.stringMatching(/^apikey_/),
        per: "day",
        threshold: 50,
        amount: "1",
        spent: "0.500001",
        begins_anew_at: anewText((TODAY + 1) * DAY_MS),
      },
    },
  );
});

test("receivers that fail, hang, redirect or never end keep their message's id, and hold up nobody", async () => {
  const bad = ["/fails", "/redirects", "/hangs"];
  const ids = new Map<string, string>();
  for (const path of bad) ids.set(path, await crossed("org_a", [url(path)]));
  // More hanging ones than one organization has places.
  for (let index = 0; index < 40; index += 1) await crossed("org_a", [url("/hangs")]);
  const good = await crossed("org_b", [url("/good"), url("/endless")]);
  pod({ org_a: bad.map((path) => told(path)), org_b: [told("/good"), told("/endless")] });
  await expect
    .poll(async () => came.filter(({ path }) => path === "/good" || path === "/endless").length)
    .toBe(2);
  await expect
    .poll(() => bad.every((path) => came.some((one) => one.headers["webhook-id"] === ids.get(path))), {
      timeout: 20_000,
    })
    .toBe(true);
  await expect.poll(async () => (await state())["/fails"]).toMatchObject({ ended: false, failure: "failed" });
  // A try that is still under way would begin its pause only after the hurry, and what was taken be noted only after it.
  const underWay = () =>
    pool.oneFirst(sql.type(z.object({ count: z.bigint() }))`
      select count(*) from webhook_deliveries
      where message_id = any(${sql.array([...ids.values()], "text")}) and failure is null
        or message_id = ${good} and ended_at is null and url = ${url("/good")}
    `);
  await expect.poll(underWay, { timeout: 20_000 }).toBe(0n);
  await hurry();
  const tries = (path: string) => came.filter(({ headers }) => headers["webhook-id"] === ids.get(path));
  await expect.poll(() => Math.min(...bad.map((path) => tries(path).length)), { timeout: 20_000 }).toBe(2);
  // The redirect was not followed, and what was taken is not sent again.
  expect(came.filter(({ path }) => path === "/good")).toHaveLength(1);
  expect(came.find(({ path }) => path === "/good")?.headers["webhook-id"]).toBe(good);
  for (const path of bad) expect(new Set(tries(path).map(({ body }) => body)).size).toBe(1);
});

test("namespaces whose receivers all hang leave places for others, however many organizations they have", async () => {
  const homes = Object.fromEntries(
    ["evil-1", "evil-2", "evil-3"].flatMap((namespace) =>
      Array.from({ length: 20 }, (_, index) => [`org_${namespace}_${index}`, namespace]),
    ),
  );
  for (const [id, namespace] of Object.entries({ ...homes, org_good_a: "good" })) {
    await pool.query(sql.unsafe`
      insert into organizations (id, display_name, declaration, namespace) values (${id}, ${id}, '', ${namespace})
    `);
    if (namespace !== "good") for (let index = 0; index < 8; index += 1) await crossed(id, [url("/hangs")]);
  }
  const evil = Object.fromEntries(Object.keys(homes).map((id) => [id, [told("/hangs")]]));
  pod({ ...evil, org_good_a: [told("/good")] }, undefined, pool, SECRET, { timeoutMs: 30_000 });
  let before = 0;
  // Until nobody gets a further place.
  await expect
    .poll(() => came.length > 60 && before === (before = came.length), { interval: 500, timeout: 20_000 })
    .toBe(true);
  await crossed("org_good_a", [url("/good")]);
  await expect.poll(() => came.some(({ path }) => path === "/good"), { timeout: 5_000 }).toBe(true);
  receiver.closeAllConnections();
});

test("a receiver that is slow for an hour gets each message under its one id, and keeps nobody waiting", async () => {
  // What a threshold, a scope and a window have crossed, each its message.
  const ids = new Set<string>();
  for (let index = 0; index < 12; index += 1) ids.add(await crossed("org_a", [url("/slow")]));
  pod({ org_a: [told("/slow")], org_b: [told("/good")] });
  const of = (id: string) => came.filter(({ headers }) => headers["webhook-id"] === id);
  let waitedMs = 0;
  let rounds = 0;
  for (; waitedMs < 3_600_000; rounds += 1) {
    await expect.poll(() => [...ids].every((id) => of(id).length > rounds), { timeout: 20_000 }).toBe(true);
    // All of them wait for their next try: nobody is at them.
    const pause = () =>
      pool.oneFirst(sql.type(z.object({ pause: z.number() }))`
        select min(extract(epoch from next_at - clock_timestamp()))::float8 as pause from webhook_deliveries
        where ended_at is null and failure = 'failed' and tries = ${rounds + 1} having count(*) = ${ids.size}
      `);
    let seconds = 0;
    await expect
      .poll(async () => (seconds = await pause().catch(() => 0)) > 0, { timeout: 20_000 })
      .toBe(true);
    waitedMs += Math.ceil(seconds) * 1_000;
    // Others are served meanwhile.
    const good = await crossed("org_b", [url("/good")]);
    await expect.poll(() => of(good).length).toBe(1);
    if (waitedMs < 3_600_000) await hurry();
  }
  // 10 s, 30 s, 90 s, 270 s, 810 s, 2,430 s.
  expect(rounds).toBe(6);
  slowMs = 0;
  await hurry();
  await expect
    .poll(async () => (await state())["/slow"], { timeout: 20_000 })
    .toEqual({ ended: true, failure: null, tries: 7 });
  await expect.poll(() => [...ids].every((id) => of(id).length === 7)).toBe(true);
  const slow = came.filter(({ path }) => path === "/slow");
  expect(new Set(slow.map(({ headers }) => String(headers["webhook-id"])))).toEqual(ids);
  for (const id of ids) expect(new Set(of(id).map(({ body }) => body)).size).toBe(1);
});

test("after a day it is given up", async () => {
  await crossed("org_a", [url("/fails")]);
  await pool.query(sql.unsafe`update threshold_messages set crossed_at = now() - interval '25 hours'`);
  pod({ org_a: [told("/fails")] });
  await expect.poll(state).toEqual({ "/fails": { ended: true, failure: "failed", tries: 1 } });
});

test("rule 8.6: nothing is sent to an address that the guard refuses, and the status can tell it", async () => {
  await crossed("org_a", [url("/good")]);
  await crossed("org_b", ["http://inside.example/hook"]);
  pod(
    {
      org_a: [told("/good", { allowCidrs: [] })],
      org_b: [{ ...told("/"), url: "http://inside.example/hook" }],
    },
    { resolve: async () => ["169.254.169.254"] },
  );
  await expect
    .poll(async () => (await refusedDestinations(pool)).map(({ organizationId }) => organizationId).sort())
    .toEqual(["org_a", "org_b"]);
  expect(came).toEqual([]);
});

test("what is not declared here, or has no secret yet, waits", async () => {
  await crossed("org_a", [url("/good")]);
  pod({ org_a: [told("/good", { credential: null })] });
  await expect.poll(state).toMatchObject({ "/good": { ended: false, failure: "not declared" } });
  pod({ org_a: [told("/good")] });
  await hurry();
  await expect
    .poll(async () => {
      await hurry();
      return (await state())["/good"];
    })
    .toMatchObject({ ended: true, failure: null });
  expect(came).toHaveLength(1);
});

test("a secret that signs nothing keeps a message waiting as one that is not there does, and for a day at most", async () => {
  await crossed("org_a", [url("/good")]);
  const without = pod({ org_a: [told("/good")] }, undefined, pool, "no base64!");
  await expect
    .poll(state)
    .toEqual({ "/good": { ended: false, failure: "no signing secret", tries: expect.any(Number) } });
  await pool.query(sql.unsafe`update threshold_messages set crossed_at = now() - interval '25 hours'`);
  await expect
    .poll(async () => {
      await hurry();
      return (await state())["/good"];
    })
    .toMatchObject({ ended: true, failure: "no signing secret" });
  await without.stop();
  const id = await crossed("org_b", [url("/good")]);
  pod({ org_b: [told("/good")] });
  await expect.poll(() => came.map(({ headers }) => headers["webhook-id"])).toEqual([id]);
});

test("a secret that signs nothing is told once in the log, and once more when it was changed", async () => {
  const lines: string[] = [];
  const log = pino({ level: "warn" }, { write: (line: string) => void lines.push(line) });
  let secret = "no base64!";
  const snapshot = () => {
    const organization = sampleOrganization("org_a", { notifications: [told("/good")] });
    return sampleSnapshot(sampleRouting(1, { organizations: [organization] }), { "ns/hooks/secret": secret });
  };
  await crossed("org_a", [url("/good")]);
  pod({}, undefined, pool, secret, { log, snapshot });
  const tried = async (times: number) => {
    await expect
      .poll(async () => {
        await hurry();
        return (await state())["/good"]?.tries;
      })
      .toBeGreaterThanOrEqual(times);
  };
  await tried(3);
  expect(lines.map((line) => (JSON.parse(line) as { msg: string }).msg)).toEqual([
    "a notification's secret signs nothing",
  ]);
  secret = "nor is this";
  await tried(8);
  expect(lines).toHaveLength(2);
  expect(lines.join("")).not.toMatch(/base64|nor is this/);
});

test("what was taken is not sent again because Postgres was away when that was to be noted", async () => {
  let isAway = true;
  const terminated = Object.assign(new Error("terminating connection"), { code: "57P01" });
  const query: DatabasePool["query"] = async (statement) => {
    if (isAway) throw terminated;
    return await pool.query(statement);
  };
  await crossed("org_a", [url("/good")]);
  pod({ org_a: [told("/good")] }, undefined, { ...pool, query });
  await expect.poll(() => came.length).toBe(1);
  // As if Postgres were away for longer than a minute, and this pod had found the message again before it noted anything.
  await expect
    .poll(async () => {
      await hurry();
      return (await state())["/good"]?.tries;
    })
    .toBeGreaterThan(2);
  isAway = false;
  await expect.poll(state).toMatchObject({ "/good": { ended: true, failure: null } });
  expect(came).toHaveLength(1);
});

test("what one pod has taken no other takes, also when it dies with it for a minute", async () => {
  for (let index = 0; index < 20; index += 1) await crossed("org_a", [url("/good")]);
  const take = (...organizations: string[]) =>
    claimDeliveries(pool, {
      most: 64,
      ofOrganization: 8,
      ofNamespace: 8,
      busy: { organizations, namespaces: [] },
    });
  const taken = (await Promise.all([take(), take(), take(), take()])).flat();
  expect(new Set(taken.map(({ id }) => id)).size).toBe(taken.length);
  expect(taken.length).toBeGreaterThanOrEqual(8);
  expect(await take("org_a")).toEqual([]);
});

test("a process ends in order also when Postgres goes away under a try", async () => {
  slowMs = 100;
  await crossed("org_a", [url("/slow")]);
  const away = { ...pool, query: () => Promise.reject(new Error("Postgres is away")) };
  const sender = pod({ org_a: [told("/slow")] }, undefined, away);
  await expect.poll(() => came.length).toBe(1);
  // What comes after it, such as the last charges, must not be left out for its sake.
  await expect(sender.stop()).resolves.toBeUndefined();
});

test("pauses grow from ten seconds to two hours", () => {
  expect([1, 2, 3, 4, 20].map((tries) => pauseAfter(tries, 0))).toEqual([
    10_000, 30_000, 90_000, 270_000, 7_200_000,
  ]);
});
