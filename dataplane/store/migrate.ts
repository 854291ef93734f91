/**
 * Migrations: SQL files `migrations/NNNN_name.sql`, each run once, in order. A plain one is one transaction; what takes
 * long on large tables runs in steps, each of which is repeated or resumed after an interruption: indexes and checks
 * (migrate-online.ts), backfills (migrate-backfill.ts). Nobody waits a second for a lock of theirs (rule 12.6). Why not a
 * library: docs/decisions/migrations.md; how to write one: CONTRIBUTING.md.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import type pg from "pg";
import { NOT_MIGRATED } from "../lib/words-of.ts";
import { takeBackfillStep } from "./migrate-backfill.ts";
import { takeOnlineStep } from "./migrate-online.ts";
import { MigrationRun, type Patience } from "./migrate-run.ts";

export interface Migration {
  /** `NNNN` of the file's name. */
  readonly version: number;
  /** The file's name without `.sql`. */
  readonly name: string;
  readonly sql: string;
  /** SHA-256 of the text, hex. */
  readonly sha256: string;
}

/** The database and this program do not fit together; the message says what to do. */
export class SchemaMismatchError extends Error {
  override readonly name = "SchemaMismatchError";
}

/** Reads the migrations that belong to this program, oldest first. @throws Error on a bad name or a number used twice. */
export function readMigrations(
  folder: string | URL = new URL("./migrations/", import.meta.url),
): Migration[] {
  const base = folder instanceof URL ? folder : new URL(`file://${folder}/`);
  const migrations = readdirSync(base)
    .filter((file) => !file.startsWith("."))
    .sort()
    .map((file) => {
      const match = /^(\d{4})_[a-z0-9_]+\.sql$/.exec(file);
      if (match === null) throw new Error(`migration ${file} is not named NNNN_name.sql`);
      const sql = readFileSync(new URL(file, base), "utf8");
      return {
        version: Number(match[1]),
        name: file.slice(0, -".sql".length),
        sql,
        sha256: createHash("sha256").update(sql).digest("hex"),
      };
    });
  const twice = migrations.find(({ version }, index) => migrations[index + 1]?.version === version);
  if (twice !== undefined) throw new Error(`two migrations have the number of ${twice.name}`);
  return migrations;
}

export interface MigrateOptions {
  readonly migrations?: readonly Migration[];
  readonly say?: (line: string) => void;
  readonly patience?: Patience;
}

/**
 * Brings a database up to date and returns the names of what was applied now (none on a second run).
 * @throws SchemaMismatchError when the database was migrated by a newer program, or an applied file was edited.
 * @throws Error when a migration fails, or others held what it has to lock for longer than `patience`. What its earlier
 * steps did stays, and the next run continues from there.
 */
export async function migrate(url: string, options: MigrateOptions = {}): Promise<string[]> {
  const { migrations = readMigrations(), say = () => {} } = options;
  await using run = await MigrationRun.open(url, options);
  const done: string[] = [];
  let told = "";
  const tell = ({ name }: Migration) => {
    if (told !== name) say(`migrating the database: ${name}`);
    told = name;
  };
  await run.alone(() => run.client.query(BOOKKEEPING));
  for (;;) {
    const step = await run.alone(() => takeStep(run, migrations, tell));
    if (step === null) return done;
    if (step.finished) done.push(step.name);
    await run.pause(step.pauseMs);
  }
}

/** Tables of which migrations ran, and how far the one is that runs in steps. */
const BOOKKEEPING = `
  create table if not exists schema_migrations (
    version integer primary key,
    name text not null,
    sha256 text not null,
    applied_at timestamptz not null default now()
  );
  create table if not exists schema_migration_steps (version integer primary key, position jsonb not null)
`;

interface Applied {
  readonly version: number;
  readonly name: string;
  readonly sha256: string;
}

async function readApplied(client: pg.Client): Promise<Applied[]> {
  const { rows } = await client.query<Applied>(
    "select version, name, sha256 from schema_migrations order by version",
  );
  return rows;
}

/** Returns the migrations that the database has not run. @throws SchemaMismatchError */
export function findPending(migrations: readonly Migration[], applied: readonly Applied[]): Migration[] {
  const known = new Map(migrations.map((migration) => [migration.version, migration]));
  const newest = migrations.at(-1)?.name ?? "nothing";
  for (const { version, name, sha256 } of applied) {
    const migration = known.get(version);
    if (migration !== undefined && migration.name !== name)
      throw new SchemaMismatchError(
        `the database was not made by a release (it has ${name} where this program has ${migration.name}): ` +
          "give this program an empty database; `npm start` makes one in an empty --data folder",
      );
    if (migration === undefined) {
      throw new SchemaMismatchError(
        `the database has the schema of a newer release (${name}; this one knows up to ${newest}): ` +
          "start that release or a later one, or restore a backup from before the upgrade",
      );
    }
    if (migration.sha256 !== sha256) {
      throw new SchemaMismatchError(
        `migration ${name} was edited after this database had run it: put the change into a new file`,
      );
    }
  }
  const done = new Set(applied.map(({ version }) => version));
  return migrations.filter(({ version }) => !done.has(version));
}

/**
 * The check of programs that do not migrate: a data plane serves on a newer schema too, while its own release is replaced
 * (rule 12.6).
 * @param applied names of the migrations that the database has. @throws SchemaMismatchError unless it has all of this program.
 */
export function requireMigrated(
  applied: readonly string[],
  migrations: readonly Migration[] = readMigrations(),
): void {
  const lacking = migrations.filter(({ name }) => !applied.includes(name));
  if (lacking.length === 0) return;
  throw new SchemaMismatchError(`${lacking.map(({ name }) => name).join(", ")} never ran: ${NOT_MIGRATED}`);
}

interface Step {
  readonly name: string;
  readonly finished: boolean;
  readonly pauseMs: number;
}

/** Takes the next step of the oldest pending migration, the only one of a plain file; null: none is pending. */
async function takeStep(
  run: MigrationRun,
  migrations: readonly Migration[],
  tell: (migration: Migration) => void,
): Promise<Step | null> {
  const [migration] = findPending(migrations, await readApplied(run.client));
  if (migration === undefined) return null;
  tell(migration);
  const { version, name, sql, sha256 } = migration;
  try {
    const pauseMs = await takers[kindOf(sql)](run, migration);
    if (pauseMs !== null) return { name, finished: false, pauseMs };
    await run.client.query("insert into schema_migrations (version, name, sha256) values ($1, $2, $3)", [
      version,
      name,
      sha256,
    ]);
    return { name, finished: true, pauseMs: 0 };
  } catch (cause) {
    throw new Error(`migration ${name} failed: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    });
  }
}

type Kind = "plain" | "concurrently" | "steps";

/** Each takes one step, and returns how long to pause before the next one, or null when there is none. */
const takers: Readonly<Record<Kind, (run: MigrationRun, migration: Migration) => Promise<number | null>>> = {
  plain: async ({ client }, { sql }) => {
    await client.query(sql);
    return null;
  },
  concurrently: (run, { sql }) => takeOnlineStep(run, sql),
  steps: (run, { version, sql }) => takeBackfillStep(run, version, sql),
};

/** Reads the first line: `-- migrate: concurrently`, `-- migrate: steps`, or nothing. @throws Error for another word. */
export function kindOf(sql: string): Kind {
  const word = /^-- migrate: *(.*)/.exec(sql)?.[1]?.trim();
  if (word === undefined) return "plain";
  if (word === "concurrently" || word === "steps") return word;
  throw new Error(`its first line says "migrate: ${word}": known are concurrently and steps`);
}
