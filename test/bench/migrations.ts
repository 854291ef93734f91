/**
 * Migrations of each sort on tables of ten million rows while charges, batches, reports and lists go on (rule 12.6), and what
 * those felt of it. `npm run bench -- migrations`, or with fewer: `node hack/ensure.mjs test/bench/migrations.ts [ROWS]`. Filling takes
 * half of the time: `--data DIR` keeps the database; the next run goes on with the migrations of one that was ended, or undoes all.
 * Fails when a statement of the traffic waited for a lock, or a migration held one that others wait for, for a second.
 */
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { migrate } from "../../dataplane/store/migrate.ts";
import { startPostgres } from "../../hack/postgres.ts";
import { startRedis } from "../../hack/redis.ts";
import pg from "pg";
import { fillTables, migrateUnderTraffic } from "../integration/migrations-run.ts";
import { FORGET_TRAFFIC, sampleMigrations, UNDO_SAMPLES } from "../integration/migrations-world.ts";
import { renderTable } from "./figures.ts";

const { values, positionals } = parseArgs({ allowPositionals: true, options: { data: { type: "string" } } });
const rows = Number(positionals[0] ?? process.env["ROWS"] ?? 10_000_000);
const MOST_MS = 1_000;

const say = (line: string) => process.stderr.write(`bench: ${line}\n`);
const folder = await mkdtemp(join(tmpdir(), "gapura-bench-migrations-"));
const kept = values.data === undefined ? null : resolve(values.data);
const isFilled = kept !== null && existsSync(join(kept, "postgres"));
const postgres = await startPostgres({ folder: join(kept ?? folder, "postgres"), durable: false, say });
const redis = await startRedis({ folder: join(folder, "redis"), durable: false, say });
try {
  await fillOrGoOn();
  const { felt, charged, stored, lines } = await migrateUnderTraffic({
    postgresUrl: postgres.url(),
    redisUrl: redis.url,
    quietMs: 20_000,
    readerMs: 5_000,
    say,
  });
  const ms = (value: number) => value.toFixed(0);
  const columns = ["", "took, s", "longest wait, ms", "longest lock, ms", "slowest work, ms", "of"];
  const table = felt.map(({ name, tookMs, waitMs, holdMs, slowestMs, slowest }) => [
    name,
    (tookMs / 1_000).toFixed(1),
    ms(waitMs),
    ms(holdMs),
    ms(slowestMs),
    slowest,
  ]);
  console.log(renderTable({ title: `Migrations of ${rows} rows under traffic`, columns, rows: table }));
  console.log(`${charged} charges, ${stored} rows of them in the ledger`);
  for (const line of lines) console.log(line);
  const late = felt.filter(({ waitMs, holdMs }) => Math.max(waitMs, holdMs) >= MOST_MS);
  for (const { name, waitMs, waitedFor } of late) console.log(`${name}: ${ms(waitMs)} ms for ${waitedFor}`);
  if (late.length > 0 || charged !== stored) process.exitCode = 1;
} finally {
  await redis.stop();
  await postgres.stop();
  await rm(folder, { recursive: true, force: true });
}

async function fillOrGoOn(): Promise<void> {
  if (!isFilled) {
    await migrate(postgres.url());
    const began = performance.now();
    await fillTables(postgres.url(), rows);
    say(`${rows} rows in ${Math.round((performance.now() - began) / 1_000)} s`);
    return;
  }
  const client = new pg.Client({ connectionString: postgres.url() });
  await client.connect();
  const { rows: newest } = await client.query<{ version: number }>(
    "select max(version) as version from schema_migrations",
  );
  const isWhole = newest[0]?.version === sampleMigrations().at(-1)?.version;
  await client.query(isWhole ? `${UNDO_SAMPLES}; ${FORGET_TRAFFIC}` : FORGET_TRAFFIC);
  await client.end();
}
