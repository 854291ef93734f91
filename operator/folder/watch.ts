/** Says when something under a folder may have changed. */
import { type FSWatcher, watch } from "node:fs";
import { findManifests } from "./files.ts";

/** Editors write in several steps; one change is told once they are done. */
const QUIET_MS = 40;
/** A change that never ends is told anyway. */
const LONGEST_WAIT_MS = 300;
/** Watches miss what happens on some network file systems, and folders that take another's place. */
const POLL_MS = 2000;

/** Calls `changed` after each change, never twice for one, until stopped. */
export class FolderWatch {
  readonly #folder: string;
  readonly #changed: () => void;
  #watcher: FSWatcher | null = null;
  #quiet: NodeJS.Timeout | null = null;
  #waitingSince: number | null = null;
  #poll: NodeJS.Timeout | null = null;
  #signature: string | null = null;

  constructor(folder: string, changed: () => void) {
    this.#folder = folder;
    this.#changed = changed;
  }

  start(): void {
    this.#watch();
    this.#poll = setTimeout(() => void this.#look(), POLL_MS);
  }

  stop(): void {
    this.#watcher?.close();
    this.#watcher = null;
    if (this.#quiet !== null) clearTimeout(this.#quiet);
    if (this.#poll !== null) clearTimeout(this.#poll);
    this.#quiet = this.#poll = null;
  }

  #watch(): void {
    try {
      this.#watcher = watch(this.#folder, { recursive: true }, () => this.#touched());
      // Without a watch the poll still sees everything.
      this.#watcher.on("error", () => this.#watcher?.close());
    } catch {
      this.#watcher = null;
    }
  }

  #touched(): void {
    const now = Date.now();
    this.#waitingSince ??= now;
    if (this.#quiet !== null) clearTimeout(this.#quiet);
    const wait = Math.max(0, Math.min(QUIET_MS, this.#waitingSince + LONGEST_WAIT_MS - now));
    this.#quiet = setTimeout(() => {
      this.#waitingSince = null;
      this.#changed();
    }, wait);
  }

  async #look(): Promise<void> {
    const files = await findManifests(this.#folder).catch(() => null);
    const signature = files?.map((file) => `${file.path} ${file.signature}`).join("\n") ?? null;
    if (this.#signature !== null && signature !== null && signature !== this.#signature) this.#touched();
    this.#signature = signature;
    if (this.#poll !== null) this.#poll = setTimeout(() => void this.#look(), POLL_MS);
  }
}
