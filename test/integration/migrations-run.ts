/** Migrations of each sort on large tables under traffic (rule 12.6), with what others felt of each. */
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { migrate, readMigrations } from "../../dataplane/store/migrate.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { fill, LockWatch, MIGRATOR, sampleMigrations, Traffic } from "./migrations-world.ts";
import { Plane } from "./money-world.ts";

export interface Felt {
  readonly name: string;
  readonly tookMs: number;
  /** The longest wait of a statement of the traffic for a lock, and for which. */
  readonly waitMs: number;
  readonly waitedFor: string;
  /** The longest that the migration held a lock that others wait for. */
  readonly holdMs: number;
  /** The slowest work of the traffic, and of which kind. */
  readonly slowestMs: number;
  readonly slowest: string;
}

export interface UnderTraffic {
  readonly felt: readonly Felt[];
  /** Charges that the traffic saw done, and rows that the ledger has more. */
  readonly charged: number;
  readonly stored: number;
  readonly lines: readonly string[];
}

/** Fills a migrated database with so many rows. */
export async function fillTables(postgresUrl: string, rows: number): Promise<void> {
  const filler = await openPostgres(postgresUrl, { onError: () => {}, statementTimeoutMs: 1_800_000 });
  await fill(filler, rows);
  await filler.end();
}

/**
 * Applies the samples to a database that `fillTables` filled, the first beside a transaction that has read the table and stays open for
 * `readerMs`, as a `pg_dump` does.
 */
export async function migrateUnderTraffic(options: {
  readonly postgresUrl: string;
  readonly redisUrl: string;
  readonly quietMs: number;
  readonly readerMs: number;
  readonly say: (line: string) => void;
}): Promise<UnderTraffic> {
  const { postgresUrl, redisUrl, say } = options;
  await using disposal = new AsyncDisposableStack();
  const client = disposal.adopt(new pg.Client({ connectionString: postgresUrl }), (open) => open.end());
  await client.connect();
  const count = async () =>
    Number((await client.query<{ count: string }>(COUNT_NEW)).rows[0]?.count ?? Number.NaN);
  const plane = disposal.adopt(await Plane.open({ redisUrl, postgresUrl }), (open) => open.close());
  const watch = disposal.adopt(await LockWatch.start(postgresUrl), (open) => open.stop());
  const traffic = await Traffic.start(plane);
  const felt: Felt[] = [];
  const measure = async (name: string, work: () => Promise<unknown>) => {
    traffic.take();
    watch.take();
    const from = performance.now();
    await work();
    const tookMs = performance.now() - from;
    // What waited for it to the last has its time then.
    await sleep(200);
    const { wait, hold } = watch.take();
    let [slowest, slowestMs] = ["none", 0];
    for (const [kind, times] of traffic.take()) {
      const most = Math.max(...times);
      if (most > slowestMs) [slowest, slowestMs] = [kind, most];
    }
    felt.push({ name, tookMs, waitMs: wait.ms, waitedFor: wait.what, holdMs: hold.ms, slowestMs, slowest });
    const [took, waited, held, most] = [tookMs, wait.ms, hold.ms, slowestMs].map(Math.round);
    say(
      `${name}: ${took} ms, longest wait ${waited} ms (${wait.what}), lock ${held} ms (${hold.what}), ${slowest} ${most} ms`,
    );
  };
  await measure("traffic alone", () => sleep(options.quietMs));
  const lines: string[] = [];
  const url = new URL(postgresUrl);
  url.searchParams.set("application_name", MIGRATOR);
  const released = readFor(postgresUrl, options.readerMs);
  const known = [...readMigrations()];
  for (const migration of sampleMigrations()) {
    known.push(migration);
    await measure(migration.name, () =>
      migrate(url.href, { migrations: known, say: (line) => lines.push(line) }),
    );
  }
  await released;
  await traffic.stop();
  return { felt, charged: traffic.charged, stored: await count(), lines };
}

/** What the traffic charges; the rows of before are of other requests. */
const COUNT_NEW = `select count(*) from usage where accepted_at > now() - interval '23 hours'`;

/** Reads the tables in a transaction that stays open. */
async function readFor(url: string, ms: number): Promise<void> {
  const reader = new pg.Client({ connectionString: url, application_name: "pg_dump" });
  await reader.connect();
  await reader.query("begin; lock table usage, batch_items in access share mode");
  await sleep(ms);
  await reader.query("rollback");
  await reader.end();
}
