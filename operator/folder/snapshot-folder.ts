/** The snapshot as files of one directory (dataplane/config/schema.ts). */
import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Slot } from "../../dataplane/config/schema.ts";
import { indexFileName, type SnapshotFile } from "../plan/shards.ts";
import { DRAFT_PREFIX, makeFolder, writeAtomically } from "./files.ts";

const SNAPSHOT_FILE = /^[ab]-(index\.json|(credentials-)?\d\.gz)$/;

export class SnapshotFolder {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Removes what a killed operator left half written; only for the operator that writes here. */
  async removeDrafts(): Promise<void> {
    const names = await readdir(this.#folder).catch(() => []);
    for (const name of names)
      if (name.startsWith(DRAFT_PREFIX)) await rm(join(this.#folder, name), { force: true });
  }

  async read(): Promise<ReadonlyMap<string, Uint8Array>> {
    makeFolder(this.#folder);
    const files = new Map<string, Uint8Array>();
    for (const name of await readdir(this.#folder)) {
      if (SNAPSHOT_FILE.test(name)) files.set(name, await readFile(join(this.#folder, name)));
    }
    return files;
  }

  /** Writes each file by rename, the index last, so that a slot is complete only when all of it is there. */
  async write(slot: Slot, files: readonly SnapshotFile[]): Promise<void> {
    for (const { name, bytes } of files) await writeAtomically(join(this.#folder, name), bytes, 0o600);
    const written = new Set(files.map(({ name }) => name));
    await this.#remove(slot, (name) => !written.has(name));
  }

  async empty(slot: Slot): Promise<void> {
    // The index first: without it nobody begins to read the rest.
    await rm(join(this.#folder, indexFileName(slot)), { force: true });
    await this.#remove(slot, () => true);
  }

  async #remove(slot: Slot, which: (name: string) => boolean): Promise<void> {
    for (const name of await readdir(this.#folder))
      if (SNAPSHOT_FILE.test(name) && name.startsWith(`${slot}-`) && which(name))
        await rm(join(this.#folder, name), { force: true });
  }
}
