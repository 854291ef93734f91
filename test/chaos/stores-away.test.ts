/**
 * Stores that freeze, vanish without a word, break off or are slow, under load: no data plane ends by itself, each
 * serves again once they are back, and every complete answer was charged.
 */
import { execFileSync, spawn } from "node:child_process";
import { constants as modes, mkdtemp, open, rename, rm } from "node:fs/promises";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { readMigrations } from "../../dataplane/store/migrate.ts";
import { hasEnded } from "../../hack/processes.ts";
import { DataPlane } from "../fakes/data-plane.ts";
import { programEnvironment } from "../fakes/program-environment.ts";
import { TcpProxy } from "../fakes/tcp-proxy.ts";
import { freshPostgres, freshRedis, type TestStore } from "../integration/stores.ts";
import { World } from "./money-planes.ts";

/** Longer than the time-outs of commands and of the ends of answers that are withheld for a second. */
const AWAY_MS = 4_000;
const SERVES_WITHIN_MS = 30_000;

let postgres: TestStore;
let redis: TestStore;
let proxies: readonly [postgres: TcpProxy, redis: TcpProxy];
let world: World;
let plane: DataPlane;
beforeAll(async () => {
  [postgres, redis] = await Promise.all([freshPostgres(), freshRedis()]);
  proxies = [await TcpProxy.open(postgres.url), await TcpProxy.open(redis.url)];
  const stores = { postgresUrl: proxies[0].url, redisUrl: proxies[1].url };
  world = await World.open(stores, { environment: { LOG_LEVEL: "warn" } });
  plane = await world.start();
});
afterAll(async () => {
  await world.close();
  for (const proxy of proxies) await proxy.close();
  await Promise.all([postgres[Symbol.asyncDispose](), redis[Symbol.asyncDispose]()]);
});

interface Away {
  readonly store: TestStore;
  readonly proxy: TcpProxy;
}
const faults: readonly (readonly [string, (away: Away) => void])[] = [
  ["is frozen", ({ store }) => store.freeze()],
  ["is in a hole", ({ proxy }) => proxy.hole()],
  ["hears all and answers nothing", ({ proxy }) => proxy.hole("answers")],
  ["cannot be reached", ({ proxy }) => proxy.cut()],
  [
    "answers neither subscriptions nor commits",
    ({ proxy }) => {
      proxy.unanswered = /subscribe|commit/i;
      proxy.cut();
      proxy.reconnect();
    },
  ],
  [
    "is slower than anybody waits",
    ({ proxy }) => {
      // Connections break as well: what a client does at a new one is slow, too.
      proxy.cut();
      proxy.reconnect();
      proxy.delayMs = 700;
    },
  ],
];
const back = ({ store, proxy }: Away) => {
  store.resume();
  proxy.delayMs = 0;
  proxy.unanswered = null;
  proxy.reconnect();
};

const cases = faults.flatMap(([how, hurt]) =>
  (["Redis", "Postgres", "both"] as const).map((who) => [who, how, hurt] as const),
);

test.each(cases)(
  "%s %s under load: the data plane lives, and serves afterwards",
  async (who, _how, hurt) => {
    const all: Record<typeof who, Away[]> = {
      Redis: [{ store: redis, proxy: proxies[1] }],
      Postgres: [{ store: postgres, proxy: proxies[0] }],
      both: [],
    };
    all.both.push(...all.Redis, ...all.Postgres);
    const stop = new AbortController();
    const load = world.load(() => [plane], 6, stop.signal);
    await sleep(300);
    for (const away of all[who]) hurt(away);
    await sleep(AWAY_MS);
    for (const away of all[who]) back(away);
    stop.abort();
    await load;
    const served = async () => !hasEnded(plane.process) && (await world.ask(plane)).complete;
    await expect.poll(served, { timeout: SERVES_WITHIN_MS }).toBe(true);
    expect(hasEnded(plane.process)).toBe(false);
  },
  90_000,
);

const startFaults = faults
  .filter(([how]) => !/slower|commits/.test(how))
  .map(([how, hurt]) => [how, hurt] as const);

test.each(startFaults)(
  "a data plane that starts while Postgres %s lives, says what it waits for, and serves once it is back",
  async (_how, hurt) => {
    const away = { store: postgres, proxy: proxies[0] };
    hurt(away);
    const starting = await world.spawn();
    const said = async () => (await starting.readiness())?.text;
    await expect
      .poll(said, { timeout: SERVES_WITHIN_MS })
      .toMatch(/^FAIL serving: starting, waits for postgres: /);
    back(away);
    await starting.ready();
    expect((await world.ask(starting)).complete).toBe(true);
    await starting.stop("SIGTERM");
  },
  90_000,
);

test("stores that are away for long are told of in a line of each part that misses them, not with every try", async () => {
  let said = "";
  const hear = (bytes: Buffer) => (said += bytes.toString());
  plane.process.stdout?.on("data", hear);
  for (const proxy of proxies) proxy.cut();
  await sleep(AWAY_MS);
  const lines = said.split("\n").slice(0, -1);
  plane.process.stdout?.off("data", hear);
  for (const proxy of proxies) proxy.reconnect();
  const told = lines.map((line) => {
    const { msg, store, task } = z.looseObject({ msg: z.string() }).parse(JSON.parse(line));
    return [msg, store, task].join(" ");
  });
  expect(told).toContain("a store is away redis ");
  expect(told.filter((one, index) => told.indexOf(one) !== index)).toEqual([]);
  await plane.ready();
}, 60_000);

/** Ends the waiting of whoever reads a FIFO. There may be nobody: then writing would wait in turn. */
async function letGo(fifo: string): Promise<void> {
  try {
    await (await open(fifo, modes.O_WRONLY | modes.O_NONBLOCK)).close();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENXIO") throw error;
  }
}

test("one whose configuration is not read yet says so, not that it waits for a store", async () => {
  const folder = await mkdtemp(join(tmpdir(), "gapura-test-"));
  // Whoever reads it waits until somebody has written.
  const index = join(folder, "a-index.json");
  execFileSync("mkfifo", [index]);
  const stores = { postgresUrl: proxies[0].url, redisUrl: proxies[1].url };
  const starting = await DataPlane.spawn({ stores, snapshot: folder });
  try {
    const said = async () => (await starting.readiness())?.text;
    await expect
      .poll(said, { timeout: SERVES_WITHIN_MS })
      .toBe("FAIL serving: starting, waits for its first configuration to be read\n");
    const gone = join(folder, "read");
    await rename(index, gone);
    const saidThen = async () => {
      await letGo(gone);
      return await said();
    };
    await expect.poll(saidThen, { timeout: SERVES_WITHIN_MS }).toContain("no snapshot is loaded");
  } finally {
    await starting.stop("SIGKILL");
    await rm(folder, { recursive: true });
  }
}, 90_000);

test("one whose Postgres goes away while it copies its organizations says that it waits for that, and serves afterwards", async () => {
  const [proxy] = proxies;
  proxy.unanswered = /directory_state/;
  try {
    const starting = await world.spawn();
    await expect
      .poll(async () => (await starting.readiness())?.text, { timeout: SERVES_WITHIN_MS })
      .toBe("FAIL serving: starting, waits for its organizations to be copied into Postgres\n");
    back({ store: postgres, proxy });
    await starting.ready();
    await starting.stop("SIGTERM");
  } finally {
    back({ store: postgres, proxy });
  }
}, 90_000);

test("one whose database lacks the newest migration ends, and says which", async () => {
  const client = new pg.Client({ connectionString: postgres.url });
  await client.connect();
  const newest = readMigrations().at(-1);
  if (newest === undefined) throw new Error("there are no migrations");
  const renamed = (from: string, to: string) =>
    client.query("update schema_migrations set name = $2 where name = $1", [from, to]);
  await renamed(newest.name, "9999_later");
  try {
    const { process: starting } = await world.spawn();
    let said = "";
    starting.stderr?.setEncoding("utf8").on("data", (text: string) => (said += text));
    await expect.poll(() => hasEnded(starting), { timeout: SERVES_WITHIN_MS }).toBe(true);
    expect(starting.exitCode).toBe(1);
    expect(said).toContain(`Postgres: ${newest.name} never ran: this database has not the schema`);
  } finally {
    await renamed("9999_later", newest.name);
    await client.end();
  }
}, 60_000);

test("a command whose Postgres is away says so, and does its work once it is back", async () => {
  const [proxy, redisProxy] = proxies;
  proxy.cut();
  try {
    const words = ["grant", "--organization", "org_none", "--name", "first", "--amount", "1"];
    const child = spawn(process.execPath, ["dataplane/main.ts", ...words], {
      env: { ...programEnvironment(), DATABASE_URL: proxy.url, REDIS_URL: redisProxy.url },
      stdio: ["ignore", "ignore", "pipe"],
    });
    let said = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => (said += text));
    await expect
      .poll(() => said, { timeout: SERVES_WITHIN_MS })
      .toMatch(/^gapura: waiting for Postgres: .+\n$/);
    proxy.reconnect();
    await expect.poll(() => hasEnded(child), { timeout: SERVES_WITHIN_MS }).toBe(true);
    expect(said).toMatch(/\ngapura: there is no organization org_none\n$/);
  } finally {
    proxy.reconnect();
  }
}, 60_000);

test.each(["SIGTERM", "SIGINT"] as const)(
  "%s while a data plane waits for its Postgres ends it at once, also as the first process of a container",
  async (signal) => {
    const [postgresProxy] = proxies;
    postgresProxy.cut();
    try {
      const waiting = await world.spawn();
      await expect
        .poll(async () => (await waiting.readiness())?.text, { timeout: SERVES_WITHIN_MS })
        .toMatch(/waits for postgres/);
      waiting.process.kill(signal);
      await expect.poll(() => hasEnded(waiting.process)).toBe(true);
      // By the program itself: the kernel ends nobody for a signal who is the first process of a container.
      expect(waiting.process.signalCode).toBe(null);
      expect(waiting.process.exitCode).toBe(128 + constants.signals[signal]);
    } finally {
      postgresProxy.reconnect();
    }
  },
  60_000,
);

test.each(["Postgres", "Redis"] as const)(
  "SIGTERM while %s answers nothing: it ends all the same",
  async (who) => {
    const leaving = await world.start();
    const served = async () => (await world.ask(leaving)).complete;
    await expect.poll(served, { timeout: SERVES_WITHIN_MS }).toBe(true);
    const [postgresProxy, redisProxy] = proxies;
    const proxy = who === "Postgres" ? postgresProxy : redisProxy;
    proxy.hole();
    try {
      leaving.process.kill("SIGTERM");
      await expect.poll(() => hasEnded(leaving.process), { timeout: 90_000 }).toBe(true);
      expect(leaving.process.signalCode).toBe(null);
    } finally {
      proxy.reconnect();
    }
  },
  90_000,
);

test("and every complete answer was charged exactly once, for what it said", async () => {
  await expect(world.judge()).resolves.toBeUndefined();
});
