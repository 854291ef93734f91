/** Says when something under a folder may have changed. */
import { type FSWatcher, watch } from "node:fs";
import { basename } from "node:path";
import { findManifests } from "./files.ts";

/** Editors write in several steps: a change is reported once nothing has happened for this long. */
const QUIET_MS = 40;
/** After this time a change that does not end is reported anyway. */
const LONGEST_WAIT_MS = 300;
/** How often the folder is looked through: watches miss changes on some network file systems, and behind links. */
const POLL_MS = 2000;

/**
 * Calls `changed` after each change, never twice for one, until stopped. Each folder is watched by itself: Node's
 * own recursive watch loses files that are renamed into place, which is how editors save.
 */
export class FolderWatch {
  readonly #folder: string;
  readonly #changed: () => void;
  readonly #polls: boolean;
  readonly #except: string | undefined;
  #watchers = new Map<string, FSWatcher>();
  #quiet: NodeJS.Timeout | null = null;
  #waitingSince: number | null = null;
  #poll: NodeJS.Timeout | null = null;
  #signature: string | null = null;
  #stopped = false;

  /**
   * `polls`: also looks every two seconds, at manifests alone, for what the watches missed. `except`: a folder that is left
   * out (files.ts).
   */
  constructor(folder: string, changed: () => void, polls: boolean, except?: string) {
    this.#folder = folder;
    this.#changed = changed;
    this.#polls = polls;
    this.#except = except;
  }

  /** Watches every folder before it returns, so that nothing falls between the first look and the watch. */
  start(): void {
    this.#look();
  }

  stop(): void {
    this.#stopped = true;
    for (const watcher of this.#watchers.values()) watcher.close();
    this.#watchers.clear();
    if (this.#quiet !== null) clearTimeout(this.#quiet);
    if (this.#poll !== null) clearTimeout(this.#poll);
  }

  #touched(): void {
    if (this.#stopped) return;
    const now = Date.now();
    this.#waitingSince ??= now;
    if (this.#quiet !== null) clearTimeout(this.#quiet);
    const wait = Math.max(0, Math.min(QUIET_MS, this.#waitingSince + LONGEST_WAIT_MS - now));
    this.#quiet = setTimeout(() => {
      this.#waitingSince = null;
      // New folders are watched before they are read.
      this.#scan();
      this.#changed();
    }, wait);
  }

  #look(): void {
    const before = this.#signature;
    this.#scan();
    if (before !== null && this.#signature !== before) this.#touched();
    // A folder that is away has no watch that shows when it is there again.
    if (this.#polls || !this.#watchers.has(this.#folder))
      this.#poll = setTimeout(() => this.#look(), POLL_MS);
  }

  /** Watches the folders that are there now, no others, and notes the state of their files. */
  #scan(): void {
    const seen = new Set<string>();
    try {
      const enter = (folder: string) => {
        seen.add(folder);
        this.#watch(folder);
      };
      const except = this.#except === undefined ? {} : { except: this.#except };
      const files = findManifests(this.#folder, { enter, ...except });
      this.#signature = files.map((file) => `${file.path} ${file.signature}`).join("\n");
    } catch {
      // The folder is away, or changed during the look: the next look finds out.
      return;
    }
    for (const [folder, watcher] of this.#watchers)
      if (!seen.has(folder)) {
        watcher.close();
        this.#watchers.delete(folder);
      }
  }

  #watch(folder: string): void {
    if (this.#stopped || this.#watchers.has(folder)) return;
    const forget = () => {
      this.#watchers.get(folder)?.close();
      this.#watchers.delete(folder);
    };
    try {
      const watcher = watch(folder, (event, name) => {
        // The folder itself went away, or another took its place under the same name.
        if (event === "rename" && (name === null || name === basename(folder))) forget();
        this.#touched();
      });
      // Without a watch the poll still sees everything.
      watcher.on("error", forget);
      this.#watchers.set(folder, watcher);
    } catch {
      forget();
    }
  }
}
