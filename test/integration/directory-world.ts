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
import { sampleOrganization, sampleRouting, sampleSnapshot } from "../fakes/sample-snapshot.ts";
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

export const declaredKey = (name: string, secret = name) => ({
  name,
  sha256: digest(secret),
  hint: "sk-svc-x",
});
export const declaredInferenceKey = (name: string, secret = name, project = "default") => ({
  ...declaredKey(name, secret),
  project,
});
export const declaredOrganization = (id: string, more: Partial<OrganizationEntry> = {}): OrganizationEntry =>
  sampleOrganization(id, {
    source: { kind: "Organization", namespace: "n", name: id, uid: `uid-${id}`, generation: 1 },
    grants: [],
    ...more,
  });

interface CopyOptions {
  readonly serial?: number | undefined;
  readonly pod?: DirectorySync;
}

export class DirectoryWorld {
  readonly #database: TestDatabase;
  readonly pool: DatabasePool;
  readonly directory: KeyDirectory;
  /** Of the newest snapshot of `snapshotOf`. */
  serial = 1000;

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

  /** A snapshot of these organizations, newer than those before unless `serial` says otherwise. */
  snapshotOf(organizations: OrganizationEntry[], serial = (this.serial += 1)): Snapshot {
    return snapshotOfOrganizations(serial, organizations);
  }

  /** A pod copies such a snapshot and ends. @returns what it acknowledges. */
  async copy(organizations: OrganizationEntry[], { serial, pod = this.pod() }: CopyOptions = {}) {
    const snapshot = this.snapshotOf(organizations, serial);
    await pod.copy(snapshot);
    await pod.stop();
    return pod.acknowledged(snapshot.routing.objects);
  }

  /** As Postgres has it at this moment. */
  find(secret: string) {
    return this.directory.find(digest(secret), 0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.pool.end();
    await this.#database.drop();
  }
}
