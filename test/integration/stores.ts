/**
 * Real stores for the tests. As vitest's global set-up it starts one Postgres for the whole run; the functions
 * below give each test file a database or a Redis of its own.
 */
import { existsSync } from "node:fs";
import { chown, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { setTimeout as sleep } from "node:timers/promises";
import type { Redis } from "ioredis";
import pg from "pg";
import { inject } from "vitest";
import type { TestProject } from "vitest/node";
import { migrate, readMigrations } from "../../dataplane/store/migrate.ts";
import { startPostgres, type PostgresServer } from "../../hack/postgres.ts";
import { processesIn, signalAll, stopProcess } from "../../hack/processes.ts";
import { startRedis, type RedisServer } from "../../hack/redis.ts";
import { startPooler } from "./pooler.ts";
import { startRedisCluster, type RedisCluster } from "./redis-cluster.ts";
import { startSentinels, type SentinelSet } from "./sentinels.ts";

declare module "vitest" {
  export interface ProvidedContext {
    /** Connection string of the run's Postgres, with the rights to make databases. */
    readonly postgresUrl: string;
    /** Name of a migrated database to copy. */
    readonly templateDatabase: string;
    /** The same server through a PgBouncer, when TEST_POOLER is set: `freshDatabase` gives this one. */
    readonly pooledUrl: string | null;
  }
}

const POOLER_WITHIN_MS = 20_000;
const POOLER_PAUSE_MS = 50;
const say = (line: string) => process.stderr.write(`stores: ${line}\n`);
const TEMPLATE = "gapura_template";

/** Vitest's global set-up of the integration project. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = await mkdtemp(join(tmpdir(), "gapura-stores-"));
  const postgres = await startPostgres({ folder: join(folder, "postgres"), durable: false, say });
  const pooler = process.env["TEST_POOLER"] === "true" ? await startPooler(postgres.url()) : null;
  const stop = async () => {
    await pooler?.[Symbol.asyncDispose]();
    await postgres.stop();
    await rm(folder, { recursive: true, force: true });
  };
  try {
    await execute(postgres.url(), `create database ${TEMPLATE}`);
    await migrate(postgres.url(TEMPLATE), { say });
    project.provide("postgresUrl", postgres.url());
    project.provide("templateDatabase", TEMPLATE);
    project.provide("pooledUrl", pooler?.through(postgres.url()) ?? null);
    return stop;
  } catch (error) {
    await stop();
    throw error;
  }
}

export interface TestDatabase {
  readonly url: string;
  drop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

let made = 0;

/** A database of one's own on the run's Postgres: migrated (0.1 s, copied from a template), or empty. */
export async function freshDatabase(options: { readonly migrated?: boolean } = {}): Promise<TestDatabase> {
  const server = inject("postgresUrl");
  const name = `test_${process.pid}_${(made += 1)}`;
  const template = (options.migrated ?? true) ? inject("templateDatabase") : "template1";
  await execute(server, `create database ${name} template ${template}`);
  const url = new URL(inject("pooledUrl") ?? server);
  url.pathname = `/${name}`;
  const drop = () => execute(server, `drop database if exists ${name} with (force)`);
  return { url: url.href, drop, [Symbol.asyncDispose]: drop };
}

async function execute(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}

/** With their owners, as Postgres does not run as root. */
const copy = (from: string, to: string) => promisify(execFile)("cp", ["-a", from, to]);

/** A store in a process of its own, for tests that hurt it. The address stays the same over restarts. */
export interface TestStore {
  readonly url: string;
  /** Where its data are. */
  readonly folder: string;
  /** Stops it cleanly. */
  stop(): Promise<void>;
  /** SIGKILL. */
  kill(): Promise<void>;
  /** Starts it again, on the same port and data, after `stop` or `kill`. */
  start(): Promise<void>;
  /** SIGSTOP: connections stay open and nobody answers, until `resume`. */
  freeze(): void;
  /** Remembers what it holds now, as of one moment. */
  save(): Promise<void>;
  /** Kills it and starts it with what it held then: a backup, or a replica that had not heard of the rest. */
  rollBack(): Promise<void>;
  resume(): void;
  /** Ends it and deletes its data. */
  [Symbol.asyncDispose](): Promise<void>;
}

type Server = Pick<PostgresServer | RedisServer, "port" | "process" | "stop">;

async function testStore(
  open: (folder: string, port: number) => Promise<Server>,
  urlOf: (port: number) => string,
  where: string = tmpdir(),
): Promise<TestStore> {
  const parent = await mkdtemp(join(where, "gapura-store-"));
  const folder = join(parent, "store");
  let server = await open(folder, 0);
  const { port } = server;
  // Postgres' sessions are processes of their own, which outlive their server for a moment and do not stop with it.
  const kill = async () => {
    signalAll(processesIn(folder), "SIGKILL");
    await stopProcess(server.process, "SIGKILL", 5_000);
  };
  const saved = join(parent, "saved");
  const start = async () => {
    server = await open(folder, port);
  };
  const freeze = () => signalAll(processesIn(folder), "SIGSTOP");
  const resume = () => signalAll(processesIn(folder), "SIGCONT");
  return {
    save: async () => {
      freeze();
      try {
        await rm(saved, { recursive: true, force: true });
        await copy(folder, saved);
      } finally {
        resume();
      }
      await rm(join(saved, "postmaster.pid"), { force: true });
    },
    rollBack: async () => {
      await kill();
      await rm(folder, { recursive: true, force: true });
      await copy(saved, folder);
      await start();
    },
    url: urlOf(port),
    folder,
    stop: () => server.stop(),
    kill,
    start,
    freeze,
    resume,
    [Symbol.asyncDispose]: async () => {
      await kill();
      await rm(parent, { recursive: true, force: true });
    },
  };
}

/** A Redis of several servers, all of which are hurt together. */
function severalServers(set: RedisCluster | SentinelSet): TestStore {
  let back = async () => {};
  const kill = async () => {
    back = await set.loseAll();
  };
  const noCopy = () => Promise.reject(new Error("several servers are not copied as of one moment"));
  return {
    url: set.url,
    folder: "",
    kill,
    stop: kill,
    start: () => back(),
    freeze: () => set.freeze(),
    resume: () => set.resume(),
    save: noCopy,
    rollBack: noCopy,
    [Symbol.asyncDispose]: async () => await set[Symbol.asyncDispose](),
  };
}

/**
 * A Redis process of one's own, append-only, `noeviction`; 30 ms. Remember to dispose of it. With TEST_REDIS=cluster or
 * TEST_REDIS=sentinels one of several servers.
 */
export async function freshRedis(): Promise<TestStore> {
  const form = process.env["TEST_REDIS"];
  if (form === "cluster") return severalServers(await startRedisCluster());
  if (form === "sentinels") return severalServers(await startSentinels());
  return await singleRedis();
}

/** One process, whatever TEST_REDIS says. @param where its folder is made. */
export const singleRedis = (where?: string): Promise<TestStore> =>
  testStore(
    (folder, port) => startRedis({ folder, port, durable: false, say }),
    (port) => `redis://127.0.0.1:${port}`,
    where,
  );

/** Has Redis write its append-only file anew, with what it holds now, and waits for it. */
export async function rewriteFile(redis: Redis): Promise<void> {
  await redis.bgrewriteaof();
  for (;;) {
    const state = await redis.info("persistence");
    if (!/aof_rewrite_(in_progress|scheduled):1/.test(state)) return;
    await sleep(5);
  }
}

/** A streaming replica of one, read-only, as after `pg_basebackup --write-recovery-conf`; 1 s. */
export function freshReplica(primary: TestStore): Promise<TestStore> {
  const { hostname, port: primaryPort } = new URL(primary.url);
  const backUp = async (folder: string) => {
    const client = new pg.Client({ connectionString: primary.url });
    await client.connect();
    try {
      await client.query("select pg_backup_start('replica', true)");
      await copy(primary.folder, folder);
      const { rows } = await client.query<{ labelfile: string }>(
        "select labelfile from pg_backup_stop(false)",
      );
      await rm(join(folder, "postmaster.pid"), { force: true });
      await writeFile(join(folder, "backup_label"), rows[0]?.labelfile ?? "");
      await writeFile(join(folder, "standby.signal"), "");
      const conninfo = `primary_conninfo = 'host=${hostname} port=${primaryPort} user=postgres'\n`;
      await writeFile(join(folder, "postgresql.auto.conf"), conninfo);
      const { uid, gid } = await stat(folder);
      for (const name of ["backup_label", "standby.signal", "postgresql.auto.conf"])
        await chown(join(folder, name), uid, gid);
    } finally {
      await client.end();
    }
  };
  return testStore(
    async (folder, port) => {
      if (!existsSync(folder)) await backUp(folder);
      return await startPostgres({ folder, port, durable: false, say });
    },
    (port) => `postgres://postgres@127.0.0.1:${port}/postgres`,
  );
}

/** A Postgres process of one's own with one migrated database, for crash tests; 1.5 s. With TEST_POOLER behind a PgBouncer. */
export async function freshPostgres(): Promise<TestStore> {
  const store = await singlePostgres();
  if (inject("pooledUrl") === null) return store;
  const pooler = await startPooler(store.url);
  const url = pooler.through(store.url);
  return {
    ...store,
    url,
    start: async () => {
      await store.start();
      await answers(url);
    },
    [Symbol.asyncDispose]: async () => {
      await pooler[Symbol.asyncDispose]();
      await store[Symbol.asyncDispose]();
    },
  };
}

/** A pooler asks a server that was away again only after a pause. */
async function answers(url: string): Promise<void> {
  const deadline = performance.now() + POOLER_WITHIN_MS;
  for (;;) {
    const client = new pg.Client({ connectionString: url });
    client.on("error", () => {});
    try {
      await client.connect();
      await client.query("select 1");
      return;
    } catch (error) {
      if (performance.now() > deadline) throw error;
      await sleep(POOLER_PAUSE_MS);
    } finally {
      await client.end();
    }
  }
}

/** One process with one migrated database, whatever TEST_POOLER says. @param where its folder is made. */
export async function singlePostgres(where?: string): Promise<TestStore> {
  const urlOf = (port: number) => `postgres://postgres@127.0.0.1:${port}/postgres`;
  const store = await testStore(
    (folder, port) => startPostgres({ folder, port, durable: false, say }),
    urlOf,
    where,
  );
  await migrate(store.url, { migrations: readMigrations() });
  return store;
}
