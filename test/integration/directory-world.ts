/** The directory of keys over a database of its own, and pods that copy snapshots into it. */
import { createHash } from "node:crypto";
import { pino } from "pino";
import type { DatabasePool } from "slonik";
import type { OrganizationEntry } from "../../dataplane/config/schema.ts";
import type { Snapshot } from "../../dataplane/config/snapshot.ts";
import { DirectorySync, type DirectorySyncOptions } from "../../dataplane/identity/directory-sync.ts";
import { KeyDirectory } from "../../dataplane/identity/directory.ts";
import { systemClock } from "../../dataplane/lib/clock.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { sampleRouting, sampleSnapshot } from "../fakes/sample-snapshot.ts";
import { freshDatabase, type TestDatabase } from "./stores.ts";

export const digest = (key: string) => createHash("sha256").update(key).digest("hex");

/** A snapshot of these organizations and nothing else. */
export const snapshotOfOrganizations = (serial: number, organizations: OrganizationEntry[]): Snapshot =>
  sampleSnapshot(
    sampleRouting(serial, {
      routes: [],
      organizations,
      objects: organizations.map(({ source }) => source),
    }),
  );

export class DirectoryWorld {
  readonly #database: TestDatabase;
  readonly pool: DatabasePool;
  readonly directory: KeyDirectory;

  private constructor(database: TestDatabase, pool: DatabasePool) {
    this.#database = database;
    this.pool = pool;
    this.directory = new KeyDirectory({ pool, clock: systemClock });
  }

  static async open(): Promise<DirectoryWorld> {
    const database = await freshDatabase();
    return new DirectoryWorld(database, await openPostgres(database.url, { onError: () => {} }));
  }

  get databaseUrl(): string {
    return this.#database.url;
  }

  /** Further connections, which the caller ends. */
  openPool(): Promise<DatabasePool> {
    return openPostgres(this.#database.url, { onError: () => {} });
  }

  /** What one pod has. */
  pod(more: Partial<DirectorySyncOptions> = {}): DirectorySync {
    return new DirectorySync({
      pool: this.pool,
      clock: systemClock,
      directory: this.directory,
      newId,
      log: pino({ level: "silent" }),
      holds: { refresh: async () => {} },
      ...more,
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.pool.end();
    await this.#database.drop();
  }
}
