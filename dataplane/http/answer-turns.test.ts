import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { sampleKeys } from "../../test/fakes/sample-snapshot.ts";
import { startTestServer, type TestServer } from "../../test/fakes/test-server.ts";
import { ByteBudget } from "../lib/byte-budget.ts";
import { LazyList } from "../lib/json-slices.ts";
import { StoreAway } from "../store/store-away.ts";
import { metrics } from "../telemetry/metrics.ts";
import { AnswerTurns, listWaiting, readingWith } from "./answer-turns.ts";

const admin = { headers: { authorization: `Bearer ${sampleKeys.admin}` } };
const PATH = "/v1/organization/long";

/** A server with one long answer, made of what `make` brings. */
async function world(make: () => Promise<object>, connections = 10, withinMs?: number) {
  const bodies = new ByteBudget(64 * 1024);
  const turns = new AnswerTurns(readingWith(connections), undefined, withinMs);
  const server = await startTestServer(
    [(app) => app.get(PATH, { config: { access: "admin" } }, turns.json(make))],
    { services: { bodies } },
  );
  return { server, bodies };
}

test("a long answer counts among the bytes of bodies until it is out", async () => {
  const { server, bodies } = await world(async () => ({ data: ["x".repeat(1024 * 1024)] }));
  await using _ = server;
  const alone = await server.fetch(PATH, admin);
  expect([alone.status, (await alone.text()).length]).toEqual([200, 1024 * 1024 + 13]);
  await expect.poll(() => bodies.used).toBe(0);
  // One always fits into an idle process.
  const other = bodies.lease("org_other");
  other.take(1);
  expect((await server.fetch(PATH, admin)).status).toBe(503);
  other.release();
  expect((await server.fetch(PATH, admin)).status).toBe(200);
});

test("one without room is made no further than that is known", async () => {
  let made = 0;
  const endless = new LazyList(function* () {
    for (; made < 10_000; made += 1) yield "x".repeat(1024);
  });
  const { server, bodies } = await world(async () => ({ data: endless }));
  await using _ = server;
  bodies.lease("org_other").take(1);
  expect((await server.fetch(PATH, admin)).status).toBe(503);
  expect(made).toBeLessThan(200);
  await expect.poll(() => bodies.used).toBe(1);
});

test("a short one is never refused for what others hold", async () => {
  const { server, bodies } = await world(async () => ({ data: [] }));
  await using _ = server;
  bodies.lease("org_other").take(64 * 1024);
  expect((await server.fetch(PATH, admin)).status).toBe(200);
});

/** How many requests have come, from now on. */
function arrivals({ server }: TestServer): () => number {
  let count = 0;
  server.app.server.on("request", () => (count += 1));
  return () => count;
}

/** Waits until the server has seen so many clients leave. */
async function left(server: TestServer, count: number): Promise<void> {
  await expect.poll(() => server.logged.filter(({ status }) => status === 499)).toHaveLength(count);
}

test("one of an organization is made at a time, and who leaves waits no more", async () => {
  const made: PromiseWithResolvers<object>[] = [];
  const { server } = await world(() => {
    const one = Promise.withResolvers<object>();
    made.push(one);
    return one.promise;
  });
  await using _ = server;
  const asked = arrivals(server);
  const leaves = new AbortController();
  const first = server.fetch(PATH, admin);
  await expect.poll(() => made.length).toBe(1);
  const second = server.fetch(PATH, { ...admin, signal: leaves.signal });
  await expect.poll(asked).toBe(2);
  const third = server.fetch(PATH, admin);
  await expect.poll(asked).toBe(3);
  leaves.abort();
  await expect(second).rejects.toThrow("aborted");
  await left(server, 1);
  made[0]?.resolve({ data: [] });
  expect((await first).status).toBe(200);
  await expect.poll(() => made.length).toBe(2);
  made[1]?.reject(new Error("the database is away"));
  expect((await third).status).toBe(500);
  expect(made).toHaveLength(2);
});

test("nobody waits longer than a bound, whether for a turn or for what is read, which keeps its turn until it ends", async () => {
  const made: PromiseWithResolvers<object>[] = [];
  const { server, bodies } = await world(
    () => {
      const one = Promise.withResolvers<object>();
      made.push(one);
      return one.promise;
    },
    10,
    300,
  );
  await using _ = server;
  const began = performance.now();
  const answers = await Promise.all([server.fetch(PATH, admin), server.fetch(PATH, admin)]);
  expect(performance.now() - began, "milliseconds").toBeLessThan(3_000);
  for (const answer of answers) {
    expect([answer.status, answer.headers.get("retry-after")]).toEqual([503, "1"]);
    expect(await answer.json()).toMatchObject({ error: { code: "server_is_overloaded" } });
  }
  // What is still being read for nobody has the organization's place.
  expect((await server.fetch(PATH, admin)).status).toBe(503);
  expect(made).toHaveLength(1);
  made[0]?.reject(new Error("the database is away"));
  const next = server.fetch(PATH, admin);
  await expect.poll(() => made.length).toBe(2);
  made[1]?.resolve({ data: [] });
  expect((await next).status).toBe(200);
  await expect.poll(() => bodies.used).toBe(0);
});

/** How many reports and lists were refused so far. */
async function refusals(): Promise<number> {
  const { values } = await metrics.refused.get();
  return values.find(({ labels }) => labels.reason === "reports")?.value ?? 0;
}

test("an answer that was made in time is not counted as refused, however slowly its client takes it", async () => {
  const long = { data: Array.from({ length: 32 }, () => "x".repeat(1024 * 1024)) };
  const bodies = new ByteBudget(256 * 1024 * 1024);
  const turns = new AnswerTurns(readingWith(10), undefined, 3_000);
  await using server = await startTestServer(
    [
      (app) =>
        app.get(
          PATH,
          { config: { access: "admin" } },
          turns.json(() => long),
        ),
    ],
    { services: { bodies } },
  );
  const before = await refusals();
  const answer = await server.fetch(PATH, admin);
  await sleep(3_500);
  expect(await refusals()).toBe(before);
  expect((await answer.text()).length).toBeGreaterThan(32 * 1024 * 1024);
});

test("an answer whose client left while it was made counts nowhere", async () => {
  const made = Promise.withResolvers<object>();
  const { server, bodies } = await world(() => made.promise);
  await using _ = server;
  const asked = arrivals(server);
  const leaves = new AbortController();
  const gone = server.fetch(PATH, { ...admin, signal: leaves.signal });
  await expect.poll(asked).toBe(1);
  leaves.abort();
  await expect(gone).rejects.toThrow("aborted");
  await left(server, 1);
  made.resolve({ data: ["x".repeat(64 * 1024)] });
  expect((await server.fetch(PATH, admin)).status).toBe(200);
  await expect.poll(() => bodies.used).toBe(0);
});

test("an export whose client left before it began counts among those of its organization no more", async () => {
  const turns = new AnswerTurns(readingWith(10));
  const begins = Promise.withResolvers<void>();
  await using server = await startTestServer([
    (app) =>
      app.get(PATH, { config: { access: "admin" } }, async (request, reply) => {
        await begins.promise;
        const inTurn = turns.parts(request, reply);
        return await inTurn(async () => ({ data: [] }));
      }),
  ]);
  const asked = arrivals(server);
  const leaves = new AbortController();
  const gone = Array.from({ length: 4 }, () => server.fetch(PATH, { ...admin, signal: leaves.signal }));
  await expect.poll(asked).toBe(4);
  leaves.abort();
  await Promise.allSettled(gone);
  await left(server, 4);
  begins.resolve();
  expect((await server.fetch(PATH, admin)).status).toBe(200);
});

test("as many lists of an organization wait as free endpoints let through at once, up to half of all", async () => {
  const made: PromiseWithResolvers<object>[] = [];
  const make = () => {
    const one = Promise.withResolvers<object>();
    made.push(one);
    return one.promise;
  };
  const turns = new AnswerTurns(
    readingWith(10),
    listWaiting({ freeAtOnce: (id) => (id === "org_acme" ? 3 : 2) }),
  );
  await using server = await startTestServer([
    (app) => app.get(PATH, { config: { access: "admin" } }, turns.json(make)),
  ]);
  const statuses: number[] = [];
  const all = Array.from({ length: 6 }, async () => {
    const { status } = await server.fetch(PATH, admin);
    statuses.push(status);
    return status;
  });
  // One is being made and three wait.
  await expect.poll(() => statuses).toEqual([429, 429]);
  made[0]?.resolve({ data: [] });
  for (let n = 1; n < 4; n += 1) {
    await expect.poll(() => made.length).toBe(n + 1);
    made[n]?.resolve({ data: [] });
  }
  expect((await Promise.all(all)).filter((status) => status === 200)).toHaveLength(4);
  const { waitingOfOne } = listWaiting({ freeAtOnce: () => 100_000 });
  expect([
    typeof waitingOfOne === "function" && waitingOfOne("org_acme"),
    listWaiting(undefined).waiting,
  ]).toEqual([5_000, 10_000]);
});

test("two pieces of downloads are read at a time, and organizations take turns", async () => {
  const turns = new AnswerTurns(readingWith(10));
  const reads: { readonly owner: string; readonly end: () => void }[] = [];
  await using server = await startTestServer([
    (app) =>
      app.get(PATH, { config: { access: "inference" } }, (request, reply) => {
        const owner = request.caller?.organizationId ?? "";
        return reply.send(
          turns.download(request, reply, async function* (reader) {
            for (let piece = 0; piece < 3; piece += 1) {
              const { promise, resolve } = Promise.withResolvers<void>();
              await reader.inTurn(() => {
                reads.push({ owner, end: resolve });
                return promise;
              });
              yield Buffer.alloc(1024);
            }
          }),
        );
      }),
  ]);
  const asked = arrivals(server);
  const ask = (key: string) => server.fetch(PATH, { headers: { authorization: `Bearer ${key}` } });
  const many = Array.from({ length: 30 }, () => ask(sampleKeys.inference));
  await expect.poll(asked).toBe(30);
  const other = ask(sampleKeys.narrow);
  await expect.poll(asked).toBe(31);
  expect(reads.map(({ owner }) => owner)).toEqual(["org_acme", "org_acme"]);
  reads[0]?.end();
  await expect.poll(() => reads[2]?.owner).toBe("org_narrow");
  let ended = 1;
  const endAll = setInterval(() => {
    for (; ended < reads.length; ended += 1) reads[ended]?.end();
  }, 1);
  const bytes = await Promise.all([...many, other].map(async (one) => (await (await one).bytes()).length));
  clearInterval(endAll);
  expect(new Set(bytes)).toEqual(new Set([3 * 1024]));
  expect(reads).toHaveLength(93);
});

test("downloads that wait for their turn end with one whose read a store that is away kept up, not one after the other", async () => {
  const turns = new AnswerTurns(readingWith(10), undefined, undefined, 200);
  const reads: PromiseWithResolvers<void>[] = [];
  await using server = await startTestServer([
    (app) =>
      app.get(PATH, { config: { access: "inference" } }, (request, reply) =>
        reply.send(
          turns.download(request, reply, async function* (reader) {
            const read = Promise.withResolvers<void>();
            await reader.inTurn(() => {
              reads.push(read);
              return read.promise;
            });
            yield Buffer.alloc(1024);
          }),
        ),
      ),
  ]);
  const asked = arrivals(server);
  const ask = () => server.fetch(PATH, { headers: { authorization: `Bearer ${sampleKeys.inference}` } });
  const away = () => new StoreAway("it does not answer");
  const all = [...Array(8).keys()].map(ask);
  await expect.poll(asked).toBe(8);
  // A connection that breaks at once is one connection: the next ones may be well.
  reads[0]?.reject(away());
  await expect.poll(() => reads.length).toBe(3);
  // Nor is a store away that answered another one meanwhile.
  await sleep(250);
  reads[1]?.resolve();
  await expect.poll(() => reads.length).toBe(4);
  reads[2]?.reject(away());
  await expect.poll(() => reads.length).toBe(5);
  await sleep(250);
  reads[3]?.reject(away());
  reads[4]?.reject(away());
  const statuses = await Promise.all(all.map(async (one) => (await one).status));
  expect(statuses.filter((status) => status === 503)).toHaveLength(7);
  expect(statuses).toContain(200);
  expect(reads).toHaveLength(5);
  // Who comes later finds out anew.
  const later = ask();
  await expect.poll(() => reads.length).toBe(6);
  reads[5]?.resolve();
  expect((await later).status).toBe(200);
});

test("a download whose client left reads no further", async () => {
  const turns = new AnswerTurns(readingWith(10));
  const begins = Promise.withResolvers<void>();
  let read = 0;
  await using server = await startTestServer([
    (app) =>
      app.get(PATH, { config: { access: "inference" } }, (request, reply) =>
        reply.send(
          turns.download(request, reply, async function* (reader) {
            await begins.promise;
            for (; read < 100; read += 1) {
              reader.most(1024 * 1024);
              yield await reader.inTurn(async () => Buffer.alloc(1024));
            }
          }),
        ),
      ),
  ]);
  const asked = arrivals(server);
  const leaves = new AbortController();
  const gone = server.fetch(PATH, { signal: leaves.signal });
  await expect.poll(asked).toBe(1);
  leaves.abort();
  await expect(gone.then((answer) => answer.bytes())).rejects.toThrow("aborted");
  await left(server, 1);
  begins.resolve();
  await sleep(50);
  expect(read).toBe(0);
});
