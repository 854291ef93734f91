/** Rule 7.7: callers without a key that is known, and their connections. */
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { beforeEach, expect, test, vi } from "vitest";
import { sampleKeys } from "../../test/fakes/sample-snapshot.ts";
import { SnapshotDirectory } from "../../test/fakes/snapshot-directory.ts";
import { sampleSnapshot } from "../../test/fakes/sample-snapshot.ts";
import { startTestServer, type TestServer } from "../../test/fakes/test-server.ts";
import type { Directory, Principal } from "../identity/principal.ts";
import { ApiError } from "../lib/api-error.ts";
import { metrics } from "../telemetry/metrics.ts";
import type * as LimitsModule from "./limits.ts";
import type { Routes } from "./route.ts";
import { modelRoutes } from "./routes/models.ts";
import { networkOf, UnknownCallers } from "./unknown-callers.ts";

vi.mock("./limits.ts", async (original) => {
  const { limits } = await original<typeof LimitsModule>();
  return { limits: { ...limits, keylessCheckMs: 50, keylessIdleMs: 400 } };
});

const refused = new ApiError("authentication", "no");
let now = 0;
beforeEach(() => (now = 1_000));

test("an address is refused 20 times a second, beyond it gets 429; another address and another second are not meant", () => {
  const unknownCallers = new UnknownCallers(() => now);
  const codes = (address: string, count: number) =>
    Array.from({ length: count }, () => unknownCallers.refusal(address, refused).code);
  const expected = [...Array(20).fill("authentication"), ...Array(5).fill("rate_limited")] as string[];
  expect(codes("10.0.0.1", 25)).toEqual(expected);
  expect(codes("10.0.0.2", 20)).toEqual(expected.slice(0, 20));
  expect(unknownCallers.refusal("10.0.0.1", refused)).toMatchObject({ retryAfterSeconds: 1 });
  now += 1_000;
  expect(codes("10.0.0.1", 25)).toEqual(expected);
});

test.each([
  ["192.0.2.7", "192.0.2.7"],
  ["::ffff:192.0.2.7", "192.0.2.7"],
  ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
  ["2001:db8:1:2::", "2001:db8:1:2::/64"],
  ["fe80::1%eth0", "fe80:0:0:0::/64"],
  ["::1", "0:0:0:0::/64"],
  ["", ""],
  ["a:b", "a:b"],
])("%s is counted as %s", (address, network) => {
  expect(networkOf(address)).toBe(network);
});

test("valid keys use nothing up, unknown ones wait in line: those beyond an address' 20, and beyond 200 in all", () => {
  const unknownCallers = new UnknownCallers(() => now);
  for (let n = 0; n < 100; n += 1) {
    const lookup = unknownCallers.ask("10.0.0.1");
    expect(lookup).toEqual({ within: true, atOnce: true });
    unknownCallers.found("10.0.0.1", lookup);
  }
  const asked = Array.from({ length: 30 }, () => unknownCallers.ask("10.0.0.1"));
  expect(asked.filter(({ within }) => within).length).toBe(20);
  expect(asked.at(-1)).toEqual({ within: false, atOnce: false });
  const all = Array.from({ length: 300 }, (_, n) => unknownCallers.ask(`10.0.1.${n}`));
  expect(all.filter(({ within }) => within).length).toBe(300);
  expect(all.filter(({ atOnce }) => atOnce).length).toBe(180);
});

test("tokens that are refused, also for want of room for one more person, are counted; what is away is not", async () => {
  let error = new ApiError("unavailable", "away");
  const unknownCallers = new UnknownCallers(() => now);
  const people = { find: () => Promise.reject(error) };
  await using server = await startTestServer([modelRoutes], { services: { people, unknownCallers } });
  const statuses = async (count: number) => {
    const headers = { authorization: "Bearer a.b.c" };
    const all = Array.from({ length: count }, () => server.fetch("/v1/models", { headers }));
    return (await Promise.all(all)).map(({ status }) => status);
  };
  expect(new Set(await statuses(30))).toEqual(new Set([503]));
  error = new ApiError("people_limit_reached", "full");
  expect((await statuses(15)).toSorted((one, other) => one - other)).toEqual(Array(15).fill(403));
  error = new ApiError("authentication", "invalid");
  expect((await statuses(15)).toSorted((one, other) => one - other)).toEqual([
    ...Array(5).fill(401),
    ...Array(10).fill(429),
  ]);
});

test("ten thousand addresses are remembered, no more", () => {
  const unknownCallers = new UnknownCallers(() => now);
  for (let n = 0; n < 20; n += 1) unknownCallers.refusal("first", refused);
  for (let n = 0; n < 9_999; n += 1) unknownCallers.refusal(`10.${n}`, refused);
  expect(unknownCallers.refusal("first", refused).code).toBe("rate_limited");
  for (let n = 0; n < 10_000; n += 1) unknownCallers.refusal(`11.${n}`, refused);
  expect(unknownCallers.refusal("first", refused).code).toBe("authentication");
});

/** Remembers valid keys as the data plane does, and tells what was looked up in which way. */
class CountingDirectory implements Directory {
  readonly #keys = new SnapshotDirectory(() => sampleSnapshot());
  readonly #known = new Set<string>();
  atOnce = 0;
  inLine = 0;

  knows(sha256: string): boolean {
    return this.#known.has(sha256);
  }

  async find(sha256: string) {
    if (!this.#known.has(sha256)) this.atOnce += 1;
    return await this.#found(sha256);
  }

  async findQueued(sha256: string) {
    this.inLine += 1;
    return await this.#found(sha256);
  }

  async findAgain(known: Principal) {
    return known;
  }

  async #found(sha256: string) {
    const principal = await this.#keys.find(sha256);
    if (principal !== null) this.#known.add(sha256);
    return principal;
  }
}

const statuses = async (
  server: TestServer,
  count: number,
  headers: (n: number) => Record<string, string>,
) => {
  const answers = await Promise.all(
    Array.from({ length: count }, (_, n) => fetch(`${server.url}/v1/models`, { headers: headers(n) })),
  );
  return answers.map(({ status }) => status);
};
const unknown = (n: number) => ({
  "x-api-key": `sk-svc-${String(n).padEnd(40, "u")}`,
  "x-forwarded-for": `10.0.0.${n}`,
});

test.each<[string, (n: number) => Record<string, string>]>([
  ["unknown", unknown],
  ["malformed", (n) => ({ authorization: `Bearer sk-${n}` })],
  ["missing", () => ({})],
  ["unknown, of the wrong kind,", (n) => ({ "x-api-key": `sk-adm-svc-${String(n).padEnd(40, "u")}` })],
  ["malformed, of the wrong kind,", () => ({ "x-api-key": "sk-adm-svc-" })],
])("%s keys: 20 refusals, then 429, and valid keys of the same address are served", async (_, headers) => {
  const directory = new CountingDirectory();
  await using server = await startTestServer([modelRoutes], {
    services: { directory, unknownCallers: new UnknownCallers(() => now) },
  });
  const got = await statuses(server, 100, headers);
  expect(got.filter((status) => status === 401).length).toBe(20);
  expect(got.filter((status) => status === 429).length).toBe(80);
  expect(directory.atOnce).toBeLessThanOrEqual(20);
  // First one that nobody remembers, then one that is known.
  const valid = await statuses(server, 2, (n) => ({
    "x-api-key": n === 0 ? sampleKeys.inference : sampleKeys.narrow,
  }));
  expect(valid).toEqual([200, 200]);
  const looked = directory.inLine;
  expect(await statuses(server, 50, () => ({ "x-api-key": sampleKeys.inference }))).toEqual(
    Array(50).fill(200),
  );
  expect(directory.inLine).toBe(looked);
  const refusal = await fetch(`${server.url}/v1/models`, {
    headers: { ...headers(1), "anthropic-version": "1" },
  });
  expect(refusal.headers.get("retry-after")).toBe("1");
  expect(((await refusal.json()) as { error: { type: string } }).error.type).toBe("rate_limit_error");
});

test("rule 7.7: valid keys of the wrong kind are no unknown ones, whoever else asks from their address", async () => {
  const directory = new CountingDirectory();
  await using server = await startTestServer([modelRoutes], {
    services: { directory, unknownCallers: new UnknownCallers(() => now) },
  });
  const wrong = () => ({ "x-api-key": sampleKeys.admin });
  expect(new Set(await statuses(server, 60, wrong))).toEqual(new Set([401]));
  expect(new Set(await statuses(server, 20, unknown))).toEqual(new Set([401]));
  expect(new Set(await statuses(server, 20, unknown))).toEqual(new Set([429]));
  expect(new Set(await statuses(server, 20, wrong))).toEqual(new Set([401]));
});

async function dial(server: TestServer) {
  const socket = connect(server.port, "127.0.0.1");
  let got = "";
  let closedAfter: number | null = null;
  const since = performance.now();
  socket.on("data", (bytes) => (got += bytes.toString("latin1")));
  socket.on("error", () => {});
  socket.on("close", () => (closedAfter = performance.now() - since));
  await new Promise<void>((resolve) => socket.once("connect", () => resolve()));
  const ask = (headers: string) => socket.write(`GET /v1/models HTTP/1.1\r\nhost: x\r\n${headers}\r\n`);
  return { socket, ask, text: () => got, closedAfter: () => closedAfter };
}

test("a connection without a valid key is closed when it is idle, as its answers say; one with a key stays", async () => {
  await using server = await startTestServer([modelRoutes]);
  const [silent, wrong, busy, valid] = [
    await dial(server),
    await dial(server),
    await dial(server),
    await dial(server),
  ];
  wrong.ask("x-api-key: nonsense\r\n");
  valid.ask(`x-api-key: ${sampleKeys.inference}\r\n`);
  const asking = setInterval(() => busy.ask(""), 100);
  await expect.poll(silent.closedAfter, { timeout: 5_000 }).not.toBeNull();
  await expect.poll(wrong.closedAfter, { timeout: 5_000 }).not.toBeNull();
  expect(Number(silent.closedAfter())).toBeGreaterThan(350);
  expect(wrong.text()).toMatch(/^HTTP\/1\.1 401 [^]*\r\nKeep-Alive: timeout=0\r\n/);
  await new Promise((done) => setTimeout(done, 400));
  expect(busy.closedAfter()).toBeNull();
  clearInterval(asking);
  await expect.poll(busy.closedAfter, { timeout: 5_000 }).not.toBeNull();
  expect(valid.text()).toMatch(/^HTTP\/1\.1 200 [^]*\r\nKeep-Alive: timeout=620\r\n/);
  expect(valid.closedAfter()).toBeNull();
  valid.ask("x-api-key: nonsense\r\n");
  await expect.poll(() => valid.text()).toContain("HTTP/1.1 401");
  expect(valid.closedAfter()).toBeNull();
  for (const { socket } of [silent, wrong, busy, valid]) socket.destroy();
});

test("nor does one stay that takes nothing of an answer; one that takes it slowly, or waits for it, does", async () => {
  const large: Routes = (app) => {
    const open = { config: { access: "none" } } as const;
    app.get("/v1/large", open, (_request, reply) => reply.send(Buffer.alloc(32 * 1024 * 1024)));
    app.get("/v1/late", open, async (_request, reply) => {
      await sleep(1_000);
      return await reply.send("late");
    });
  };
  await using server = await startTestServer([large]);
  const [deaf, slow, waiting] = [await dial(server), await dial(server), await dial(server)];
  const get = (path: string) => `GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`;
  deaf.socket.pause();
  deaf.socket.write(get("/v1/large"));
  slow.socket.write(get("/v1/large"));
  waiting.socket.write(get("/v1/late"));
  slow.socket.on("data", () => {
    slow.socket.pause();
    setTimeout(() => slow.socket.resume(), 5);
  });
  await expect.poll(() => server.logged.find(({ path }) => path === "/v1/large")?.status).toBe(499);
  await expect.poll(waiting.text).toMatch(/late$/);
  expect(slow.closedAfter()).toBe(null);
  for (const { socket } of [deaf, slow, waiting]) socket.destroy();
});

test("whoever is turned away because too many keys or tokens wait already is counted", async () => {
  const tooMany = new ApiError("rate_limited", "too many wait", { retryAfterSeconds: 1 });
  const directory = new SnapshotDirectory(() => sampleSnapshot());
  Object.assign(directory, { findQueued: () => Promise.reject(tooMany) });
  const unknownCallers = new UnknownCallers(() => now);
  const people = { find: () => Promise.reject(tooMany) };
  await using server = await startTestServer([modelRoutes], {
    services: { directory, people, unknownCallers },
  });
  const counted = async () => {
    const { values } = await metrics.refused.get();
    return ["keys", "tokens"].map(
      (reason) => values.find(({ labels }) => labels.reason === reason)?.value ?? 0,
    );
  };
  const [keys = 0, tokens = 0] = await counted();
  const ask = async (key: string, path = "/v1/models") =>
    (await server.fetch(path, { headers: { authorization: `Bearer ${key}` } })).status;
  expect(await ask("a.b.c")).toBe(429);
  expect(await counted()).toEqual([keys, tokens + 1]);
  // The address has used up what is looked up at once.
  for (let n = 0; n < 20; n += 1) unknownCallers.ask("127.0.0.1");
  expect(await ask(`sk-svc-${"z".repeat(40)}`)).toBe(429);
  // Where nothing is served nobody is refused.
  expect(await ask(`sk-svc-${"z".repeat(40)}`, "/v1/nothing")).toBe(404);
  expect(await counted()).toEqual([keys + 1, tokens + 1]);
});
