/**
 * Migrations: plain SQL files `migrations/NNNN_name.sql`, each run once, in order, in a transaction of its own,
 * under an advisory lock of that transaction so that pods starting together do not race. Why not a library:
 * docs/decisions/migrations.md.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import pg from "pg";

/** Any number will do, as long as nothing else in this database uses it. */
const LOCK = 7_104_201;

export interface Migration {
  /** `NNNN` of the file's name. */
  readonly version: number;
  /** The file's name without `.sql`. */
  readonly name: string;
  readonly sql: string;
  /** SHA-256 of the text, hex. */
  readonly sha256: string;
}

/** The database and this program do not fit together; the message tells what to do. */
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

/**
 * Brings a database up to date and returns the names of what was applied now (none on a second run).
 * @throws SchemaMismatchError when the database was migrated by a newer program, or an applied file was edited.
 */
export async function migrate(
  url: string,
  options: { readonly migrations?: readonly Migration[]; readonly say?: (line: string) => void } = {},
): Promise<string[]> {
  const migrations = options.migrations ?? readMigrations();
  // A migration may take as long as it needs, so there is no statement time-out here.
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 10_000 });
  client.on("error", () => {});
  await client.connect();
  try {
    const done: string[] = [];
    for (;;) {
      const migration = await applyNext(client, migrations, options.say);
      if (migration === null) return done;
      done.push(migration.name);
    }
  } finally {
    await client.end();
  }
}

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

/** @throws SchemaMismatchError */
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

/** Applies the oldest that is pending; null: there is none. */
async function applyNext(
  client: pg.Client,
  migrations: readonly Migration[],
  say: (line: string) => void = () => {},
): Promise<Migration | null> {
  await client.query("begin");
  try {
    // Of the transaction: a session may be another one after it (rule 12.3).
    await client.query("select pg_advisory_xact_lock($1)", [LOCK]);
    await client.query(
      `create table if not exists schema_migrations (
         version integer primary key,
         name text not null,
         sha256 text not null,
         applied_at timestamptz not null default now()
       )`,
    );
    const [migration = null] = findPending(migrations, await readApplied(client));
    if (migration !== null) {
      say(`migrating the database: ${migration.name}`);
      await apply(client, migration);
    }
    await client.query("commit");
    return migration;
  } catch (error) {
    await client.query("rollback").catch(() => {});
    throw error;
  }
}

async function apply(client: pg.Client, { version, name, sql, sha256 }: Migration): Promise<void> {
  try {
    await client.query(sql);
    await client.query("insert into schema_migrations (version, name, sha256) values ($1, $2, $3)", [
      version,
      name,
      sha256,
    ]);
  } catch (cause) {
    throw new Error(`migration ${name} failed: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    });
  }
}
