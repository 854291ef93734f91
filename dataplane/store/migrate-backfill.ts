/**
 * Migrations in steps, `-- migrate: steps`: one statement that is run again and again, each time in a transaction of its own,
 * which also records how far it came. `$1::jsonb` is what the step before returned as `next` (null: the first), `$2::int`
 * how many rows to take; a step that returns no row, or null, was the last.
 */
import type { MigrationRun } from "./migrate-run.ts";

const MOST_ROWS = 50_000;
/** Time that a step aims at: its rows are locked for so long, so a charge may have to wait for it. */
const STEP_MS = 150;
const TELL_MS = 30_000;

/** Takes one step. @returns milliseconds to pause; null after the last. @throws Error for one that does not move on. */
export async function takeBackfillStep(
  run: MigrationRun,
  version: number,
  sql: string,
): Promise<number | null> {
  const { client, pace } = run;
  if (run.attempt > 0) pace.rows = Math.ceil(pace.rows / 2);
  const { rows: known } = await client.query<{ position: string }>(
    "select position from schema_migration_steps where version = $1",
    [version],
  );
  const position = known[0]?.position ?? null;
  const began = performance.now();
  const { rows } = await client.query<{ next: string | null }>(sql, [position, pace.rows]);
  const tookMs = performance.now() - began;
  const next = rows[0]?.next ?? null;
  if (next === null) {
    await client.query("delete from schema_migration_steps where version = $1", [version]);
    return null;
  }
  const { rows: moved } = await client.query(
    `insert into schema_migration_steps as known (version, position) values ($1, $2)
     on conflict (version) do update set position = excluded.position where known.position <> excluded.position
     returning version`,
    [version, next],
  );
  if (moved.length === 0) throw new Error(`its step does not move on from ${next}`);
  pace.rows = nextRows(pace.rows, tookMs);
  if (began - pace.toldAt >= TELL_MS) {
    pace.toldAt = began;
    run.say(`at ${next}`);
  }
  // A pause as long as the step: half of the time belongs to others, and vacuum and replicas keep up.
  return Math.min(1_000, tookMs);
}

/** Returns how many rows the next step takes, so that it lasts about STEP_MS. */
export function nextRows(rows: number, tookMs: number): number {
  const fitting = Math.round((rows * STEP_MS) / Math.max(1, tookMs));
  return Math.max(1, Math.min(MOST_ROWS, 2 * rows, fitting));
}
