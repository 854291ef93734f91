/** Rules 7.1 and 7.7: what a key alone says is judged before a byte of the body is read, over real stores. */
import { connect } from "node:net";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { applyGrant } from "../../dataplane/billing/ledger/accounts.ts";
import type { RateLimits } from "../../dataplane/billing/holds/held-bill.ts";
import { openBatches } from "../../dataplane/batches/start.ts";
import { ToolRoom } from "../../dataplane/batches/worker/tool-room.ts";
import { dialectPath, dialects } from "../../dataplane/dialects/dialect.ts";
import { FileStore } from "../../dataplane/files/file-store.ts";
import { PostgresContents } from "../../dataplane/files/postgres-contents.ts";
import { batchRoutes } from "../../dataplane/http/routes/batches.ts";
import { countTokensRoutes } from "../../dataplane/http/routes/count-tokens.ts";
import { AnswerTurns, readingWith } from "../../dataplane/http/answer-turns.ts";
import { fileRoutes } from "../../dataplane/http/routes/files.ts";
import { inferenceRoutes } from "../../dataplane/http/routes/inference.ts";
import { messageBatchRoutes } from "../../dataplane/http/routes/message-batches.ts";
import { modelRoutes } from "../../dataplane/http/routes/models.ts";
import type { Serve } from "../../dataplane/inference/call.ts";
import { ByteBudget } from "../../dataplane/lib/byte-budget.ts";
import { systemClock } from "../../dataplane/lib/clock.ts";
import { sealing } from "../../dataplane/lib/seal.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import {
  sampleStorage,
  sampleOrganization,
  sampleRouting,
  sampleSnapshot,
  sha256,
} from "../fakes/sample-snapshot.ts";
import { startTestServer, type TestServer } from "../fakes/test-server.ts";
import { makeOrganization, Plane, request, usage } from "./money-world.ts";
import { freshDatabase, freshRedis, type TestStore } from "./stores.ts";

const MiB = 1024 * 1024;
const noLimits: RateLimits = { requestsPerMinute: null, tokensPerMinute: null, concurrentRequests: null };
const limits = new Map<string, RateLimits>();
/** An organization's inference key and admin key. */
const keyOf = (id: string) => `sk-svc-${id.replace(/\W|_/g, "").padEnd(40, "x")}`;
const adminKeyOf = (id: string) => `sk-adm-svc-${id}`;
const ids = Array.from({ length: 40 }, (_, index) => `org_${index}`);

let redis: TestStore;
let bodies: ByteBudget;
let revoked = false;
const planes: Plane[] = [];
const servers: TestServer[] = [];
const closers: (() => Promise<void>)[] = [];

/** Holds one micro-credit, and answers when `running` lets it. */
let running = Promise.resolve();
const serve: Serve = async (call) => {
  const { organizationId } = call.principal;
  const bill = await call.meter.open(request(organizationId, { endpoint: call.dialect, inputTokens: 1 }), 1n);
  await running;
  await bill.settle(usage(1));
  call.sink.start(200, bill.headers);
  call.sink.end("{}");
};

beforeAll(async () => {
  const database = await freshDatabase();
  redis = await freshRedis();
  bodies = new ByteBudget(1024 * MiB);
  const declared = (value: string) => ({ name: "k", sha256: sha256(value), hint: value.slice(0, 14) });
  const snapshot = sampleSnapshot(
    sampleRouting(1, {
      organizations: ids.map((id) =>
        sampleOrganization(id, {
          apiKeys: [{ ...declared(keyOf(id)), project: "default" }],
          adminKeys: [declared(adminKeyOf(id))],
        }),
      ),
    }),
  );
  for (let pod = 0; pod < 2; pod += 1) {
    const plane = await Plane.open(
      { redisUrl: redis.url, postgresUrl: database.url },
      {
        limits: (id) => limits.get(id),
        recheckKey: async () => (revoked ? null : { keyEpoch: 1, projectId: "proj_test", limits: [] }),
      },
    );
    const files = new FileStore({
      postgres: plane.pool,
      contents: new PostgresContents(plane.pool),
      clock: systemClock,
      newId,
      limitsOf: () => sampleStorage,
    });
    const batches = openBatches({
      pool: plane.pool,
      redis: plane.redis,
      files,
      bodies,
      large: null,
      clock: systemClock,
      newId,
      log: (await import("pino")).pino({ level: "silent" }),
      holds: plane.holds,
      serve,
      snapshot: () => snapshot,
      toolRoom: new ToolRoom({ admit: async () => true }),
      limitsOf: async () => ({ limits: [], keyEpoch: 1 }),
      random: () => 0,
    });
    const turns = new AnswerTurns(readingWith(10));
    const server = await startTestServer(
      [
        modelRoutes,
        inferenceRoutes({ meter: plane.holds, serve }),
        countTokensRoutes({
          ask: () => Promise.resolve(1),
          upstreams: { counting: ({ upstreams: [first] }) => first },
          pool: null,
          sealerOf: sealing([{ id: "test", key: Buffer.alloc(32, 7) }]),
          files,
        }),
        fileRoutes(files, turns),
        messageBatchRoutes(batches.context, turns, () => ""),
        batchRoutes(batches.context, turns),
      ],
      { snapshot: () => snapshot, services: { bodies, preflight: plane.holds.preflight } },
    );
    planes.push(plane);
    servers.push(server);
    closers.push(async () => {
      await server[Symbol.asyncDispose]();
      await batches.stop(0);
      await plane.close();
    });
  }
  return async () => {
    await Promise.all(closers.map((close) => close()));
    await redis[Symbol.asyncDispose]();
    await database.drop();
  };
});
afterAll(() => expect(bodies.used).toBe(0));

let organization = "";
let used = 0;
/** A new organization for each test. */
async function begin(credit: bigint, of: Partial<RateLimits> = {}): Promise<void> {
  organization = ids[(used += 1)] ?? "";
  limits.set(organization, { ...noLimits, ...of });
  await makeOrganization(plane().pool, organization, credit);
}
beforeEach(() => {
  revoked = false;
  running = Promise.resolve();
});
const plane = (pod = 0): Plane => planes[pod] as Plane;
const server = (pod = 0): TestServer => servers[pod] as TestServer;
const headers = () => ({ "x-api-key": keyOf(organization) });

/** Sends a head that announces a body which never comes; the answer's head. */
async function announce(path: string, more: string): Promise<string> {
  const socket = connect(server().port, "127.0.0.1");
  const { promise, resolve } = Promise.withResolvers<string>();
  let got = "";
  socket.on("data", (bytes) => {
    got += bytes.toString("latin1");
    if (got.includes("\r\n\r\n")) resolve(got);
  });
  socket.on("close", () => resolve(got));
  socket.write(`POST ${path} HTTP/1.1\r\nhost: x\r\nx-api-key: ${keyOf(organization)}\r\n${more}\r\n`);
  const head = await promise;
  socket.destroy();
  return head;
}
const json = "content-type: application/json\r\n";
const never = `content-length: ${30 * MiB}\r\n`;
const post = (path: string, body: BodyInit, more: Record<string, string> = {}, pod = 0) =>
  server(pod).fetch(path, {
    method: "POST",
    body,
    headers: { ...headers(), "content-type": "application/json", ...more },
  });
const inference = (body: BodyInit = "{}", more: Record<string, string> = {}) =>
  post("/v1/chat/completions", body, more);

describe("a key without credit gets its 402 before its body", () => {
  beforeEach(() => begin(0n));

  test.each([
    ...dialects.map((dialect) => dialectPath[dialect]),
    "/v1/files",
    "/v1/batches",
    "/v1/messages/batches",
  ])("of 30 MiB that never comes, at %s", async (path) => {
    expect(await announce(path, json + never)).toMatch(/^HTTP\/1\.1 402 /);
    expect(await announce(path, `${json}transfer-encoding: chunked\r\n`)).toMatch(/^HTTP\/1\.1 402 /);
    expect(await announce(path, `content-type: no/thing\r\ncontent-encoding: gzip\r\n${never}`)).toMatch(
      /^HTTP\/1\.1 402 /,
    );
  });

  test("also when it is invalid, or unpacks to 32 MiB, of which nothing is held", async () => {
    let most = 0;
    const watch = setInterval(() => (most = Math.max(most, bodies.used)), 1);
    const bomb = gzipSync(Buffer.alloc(32 * MiB, "a"));
    const answers = await Promise.all([
      inference("not JSON"),
      ...Array.from({ length: 30 }, () => inference(bomb, { "content-encoding": "gzip" })),
    ]);
    clearInterval(watch);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([402]));
    expect(most).toBe(0);
  });

  test("and may count, list, read and delete", async () => {
    const counted = await post(
      "/v1/messages/count_tokens",
      JSON.stringify({ model: "alpha", messages: [{ role: "user", content: "x" }] }),
    );
    expect(counted.status).toBe(200);
    for (const path of ["/v1/models", "/v1/files", "/v1/batches"])
      expect((await server().fetch(path, { headers: headers() })).status).toBe(200);
    const gone = await server().fetch("/v1/files/file_x", { method: "DELETE", headers: headers() });
    expect(gone.status).toBe(404);
  });

  test("until a grant comes that only the ledger knows of", async () => {
    expect((await inference()).status).toBe(402);
    const { pool } = plane();
    await pool.transaction((transaction) =>
      applyGrant(transaction, { organizationId: organization, name: "g", amount: 100n, source: "command" }),
    );
    await expect.poll(async () => (await inference()).status, { timeout: 5_000 }).toBe(200);
  });
});

describe("limits of rate and number are judged before a large body", () => {
  const compressed = { body: gzipSync("{}"), headers: { "content-encoding": "gzip" } };

  test("requests a minute, with the dialect's headers", async () => {
    await begin(1_000_000n, { requestsPerMinute: 2 });
    // To look takes nothing.
    for (let n = 0; n < 5; n += 1)
      await plane().holds.preflight.inference(
        { organizationId: organization, keyId: "k", keyEpoch: 1, limits: [] } as never,
        "messages",
        true,
      );
    expect((await inference(compressed.body, compressed.headers)).status).toBe(200);
    expect((await inference(compressed.body, compressed.headers)).status).toBe(200);
    const refused = await announce("/v1/chat/completions", json + never);
    expect(refused).toMatch(/^HTTP\/1\.1 429 /);
    expect(refused).toMatch(/\r\nretry-after: \d+\r\n/);
    expect(refused).toMatch(/\r\nx-ratelimit-limit-requests: 2\r\nx-ratelimit-remaining-requests: 0\r\n/);
    const messages = await announce("/v1/messages", json + never);
    expect(messages).toMatch(/^HTTP\/1\.1 429 [^]*\r\nanthropic-ratelimit-requests-limit: 2\r\n/);
    // Of a short body it is known that the last one took what was left.
    expect(await announce("/v1/responses", `${json}content-length: 5\r\n`)).toMatch(/^HTTP\/1\.1 429 /);
  });

  test("tokens a minute, and requests at once", async () => {
    await begin(1_000_000n, { tokensPerMinute: 1 });
    expect((await inference()).status).toBe(200);
    const refused = await announce("/v1/chat/completions", json + never);
    expect(refused).toMatch(/^HTTP\/1\.1 429 [^]*\r\nx-ratelimit-limit-tokens: 1\r\n/);

    await begin(1_000_000n, { concurrentRequests: 1 });
    const answered = Promise.withResolvers<void>();
    running = answered.promise;
    const first = inference();
    await expect.poll(() => plane().holds.running).toBe(1);
    expect(await announce("/v1/chat/completions", json + never)).toMatch(
      /^HTTP\/1\.1 429 [^]*\r\nretry-after: 1\r\n/,
    );
    answered.resolve();
    expect((await first).status).toBe(200);
  });
});

test("a key that was revoked since it was looked up is refused before a body that nobody knows the standing for", async () => {
  await begin(1_000_000n);
  revoked = true;
  expect(await announce("/v1/messages", json + never)).toMatch(/^HTTP\/1\.1 401 /);
});

test("what Redis said within the last second costs nobody a question", async () => {
  await begin(1_000_000n);
  const principal = { organizationId: organization, keyId: "k", keyEpoch: 1, limits: [] } as never;
  const { preflight } = plane().holds;
  const asked = preflight.inference(principal, "chat", false);
  expect(asked).toBeInstanceOf(Promise);
  await asked;
  // Neither for a large body, where the organization has no limits.
  expect(preflight.inference(principal, "chat", true)).toBeUndefined();
  limits.set(organization, { ...noLimits, requestsPerMinute: 10 });
  expect(preflight.inference(principal, "chat", false)).toBeUndefined();
  await expect(preflight.inference(principal, "chat", true)).resolves.toBeUndefined();
  // Nor after a hold, which says the same.
  await begin(1_000_000n);
  await plane().holds.open(request(organization), 1n);
  expect(
    preflight.inference(
      { organizationId: organization, keyId: "k", keyEpoch: 1, limits: [] } as never,
      "chat",
      false,
    ),
  ).toBeUndefined();
  // A second later it is asked again.
  const later = { organizationId: organization, keyId: "k", keyEpoch: 1, limits: [] } as never;
  await expect
    .poll(() => preflight.inference(later, "chat", false) instanceof Promise, { timeout: 5_000 })
    .toBe(true);
});

describe("endpoints that cost nothing share a budget of the organization (rule 7.7)", () => {
  const caller = (kind: "inference" | "admin") => ({ organizationId: organization, kind }) as never;
  /** How many of so many requests go through, taking turns between the pods. */
  const through = async (count: number, kind: "inference" | "admin" = "inference") => {
    const outcomes = await Promise.allSettled(
      Array.from({ length: count }, (_, n) => plane(n % 2).holds.preflight.free(caller(kind))),
    );
    return outcomes.filter(({ status }) => status === "fulfilled").length;
  };

  test("1,000 at once and 100 a second, over all pods, in the caller's dialect, and none of another's", async () => {
    await begin(0n);
    const before = performance.now();
    const passed = await through(1_500);
    expect(passed).toBeGreaterThanOrEqual(1_000);
    expect(passed).toBeLessThanOrEqual(1_001 + (performance.now() - before) / 10);
    for (const [path, style] of [
      ["/v1/models", "openai"],
      ["/v1/files", "openai"],
      ["/v1/messages/batches", "messages"],
    ] as const) {
      // What flows in meanwhile is taken first.
      await expect
        .poll(async () => {
          await Promise.allSettled([through(50)]);
          const refused = await server().fetch(path, { headers: headers() });
          const { error } = (await refused.json()) as { error: { type: string } };
          return [refused.status, refused.headers.get("retry-after"), error.type];
        })
        .toEqual([429, "1", style === "openai" ? "requests" : "rate_limit_error"]);
    }
    // Who would end a stolen key is not kept from it by it.
    expect(await through(1, "admin")).toBe(1);
    await begin(0n);
    expect(await through(1)).toBe(1);
  });

  test("more where rateLimits says more", async () => {
    await begin(0n, { requestsPerMinute: 12_000 });
    const before = performance.now();
    const passed = await through(2_500);
    expect(passed).toBeGreaterThanOrEqual(2_000);
    expect(passed).toBeLessThanOrEqual(2_001 + (performance.now() - before) / 5);
  });

  test("and 64 MiB of text to count in a minute, judged by the announced length before it is read", async () => {
    await begin(0n);
    const body = (text: string) =>
      JSON.stringify({ model: "alpha", messages: [{ role: "user", content: text }] });
    const large = body("a ".repeat(14 * MiB));
    const path = "/v1/messages/count_tokens";
    expect((await post(path, large)).status).toBe(200);
    expect((await post(path, large, {}, 1)).status).toBe(200);
    const refused = await announce(path, json + never);
    expect(refused).toMatch(/^HTTP\/1\.1 429 /);
    expect(Number(/\r\nretry-after: (\d+)/.exec(refused)?.[1])).toBeGreaterThan(10);
    // Of a compressed one it shows once it is unpacked.
    expect((await post(path, gzipSync(large), { "content-encoding": "gzip" })).status).toBe(429);
    expect((await post(path, body("x"))).status).toBe(200);
  });

  test("of which the files that a request names are a part", async () => {
    await begin(1_000_000n);
    const form = new FormData();
    // Three of them are 26 MiB beyond the budget, which it takes 24 s to have again.
    form.append("file", new File(["a ".repeat(15 * MiB)], "a.txt", { type: "text/plain" }));
    const stored = await server().fetch("/v1/files", { method: "POST", headers: headers(), body: form });
    const { id } = (await stored.json()) as { id: string };
    const content = [{ type: "document", source: { type: "file", file_id: id } }];
    const body = JSON.stringify({ model: "alpha", messages: [{ role: "user", content }] });
    const path = "/v1/messages/count_tokens";
    const statuses = [];
    for (let n = 0; n < 3; n += 1) statuses.push((await post(path, body)).status);
    expect(statuses).toEqual([200, 200, 429]);
  });
});

describe("without Redis", () => {
  test("a pod counts free requests by itself, uploads go by the ledger, and inference is refused before its body", async () => {
    await begin(1_000_000n);
    const rich = organization;
    await begin(0n);
    redis.freeze();
    try {
      const passed = Array.from({ length: 1_200 }, () =>
        plane().holds.preflight.free({ organizationId: rich, kind: "inference" } as never),
      );
      const outcomes = await Promise.allSettled(passed);
      const through = outcomes.filter(({ status }) => status === "fulfilled").length;
      expect(through).toBeGreaterThanOrEqual(1_000);
      expect(through).toBeLessThan(1_200);
      expect(await announce("/v1/chat/completions", json + never)).toMatch(/^HTTP\/1\.1 503 /);
      expect(await announce("/v1/files", json + never)).toMatch(/^HTTP\/1\.1 402 /);
      const credit = plane().holds.preflight.credit({
        organizationId: rich,
        keyId: "k",
        keyEpoch: 1,
        limits: [],
      } as never);
      await expect(credit).resolves.toBeUndefined();
    } finally {
      redis.resume();
    }
  });
});
