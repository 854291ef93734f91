/**
 * Keeps the newest complete snapshot of a directory (design.md §2, rules.md 6.3). The directory is a projected
 * volume that the kubelet swaps by a symbolic link, or a folder into which the operator renames files. Either may
 * be seen half-way: the loader waits for a snapshot that is not complete, and reports one that is complete and wrong.
 * Neither ever disturbs the snapshot that is being served.
 */
import { createHash } from "node:crypto";
import { watch, type FSWatcher } from "node:fs";
import { open, realpath, stat } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { gunzip } from "node:zlib";
import type { Logger } from "pino";
import { inBackground } from "../lib/in-background.ts";
import { metrics } from "../telemetry/metrics.ts";
import { describe, RoutingReader } from "./read-routing.ts";
import {
  ACCEPTED_SCHEMA_VERSIONS,
  slotSchema,
  credentialsSchema,
  indexSchema,
  MAX_PART_BYTES,
  MAX_SHARD_BYTES,
  type Slot,
  type Credentials,
  type SnapshotIndex,
} from "./schema.ts";
import { Snapshot } from "./snapshot.ts";
import { type Rejection, PendingSerials } from "./pending-serials.ts";

const MAX_INDEX_BYTES = 64 * 1024;
/** Wait after a file event: a change is usually several. */
const SETTLE_MS = 20;
/** Longest time between two readings of the directory: volumes and replaced directories may cause no file events. */
const POLL_MS = 1000;

const unzip = promisify(gunzip);
const slots: readonly Slot[] = slotSchema.options;

/** The result of reading a slot. */
type SlotView =
  /** Not complete yet, or changing while it is read. */
  | { readonly state: "pending"; readonly lacks: string }
  | { readonly state: "rejected"; readonly rejection: Rejection }
  | { readonly state: "complete"; readonly snapshot: Snapshot };

type IndexView =
  | { readonly state: "empty" }
  | { readonly state: "rejected"; readonly text: string; readonly rejection: Rejection }
  | { readonly state: "found"; readonly text: string; readonly index: SnapshotIndex };

export class SnapshotLoader {
  readonly #directory: string;
  readonly #log: Logger;
  readonly #listeners = new Set<(snapshot: Snapshot) => void>();
  readonly #abort = new AbortController();
  readonly #routing = new RoutingReader();
  /** Texts of indexes that were read and judged, by slot: none is judged twice. */
  readonly #judged = new Map<Slot, { text: string; rejection: Rejection | null }>();
  readonly #waiting: PendingSerials;
  #current: Snapshot | null = null;
  #watcher: { readonly fs: FSWatcher; readonly inode: bigint } | null = null;
  #timer: NodeJS.Timeout | null = null;
  #looking: Promise<void> | null = null;
  #again = false;

  constructor(directory: string, log: Logger, waiting = new PendingSerials()) {
    this.#directory = directory;
    this.#log = log;
    this.#waiting = waiting;
  }

  /** The snapshot that is served; null before the first one was found. */
  get current(): Snapshot | null {
    return this.#current;
  }

  /** The newest published snapshot that could not be served, when it is newer than the one that is. */
  get rejected(): Rejection | null {
    const running = this.#current?.index.serial ?? -1;
    let newest: Rejection | null = null;
    const judged = [...this.#judged.values()].map(({ rejection }) => rejection);
    for (const rejection of [...judged, ...this.#waiting.overdue]) {
      if (rejection === null || (rejection.serial ?? Infinity) < running) continue;
      if (newest === null || (rejection.serial ?? Infinity) > (newest.serial ?? Infinity)) newest = rejection;
    }
    return newest;
  }

  /** Calls `listener` after each swap, and at once if a snapshot is served already. @returns a function that ends it. */
  subscribe(listener: (snapshot: Snapshot) => void): () => void {
    this.#listeners.add(listener);
    if (this.#current !== null) listener(this.#current);
    return () => this.#listeners.delete(listener);
  }

  /** Reads the directory once, then watches and polls it. */
  async start(): Promise<void> {
    await this.look();
    const poll = setInterval(
      () => inBackground(this.look(), this.#log, "reading the configuration"),
      POLL_MS,
    );
    this.#abort.signal.addEventListener("abort", () => clearInterval(poll));
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#watcher?.fs.close();
    await this.#looking;
  }

  /** Reads the directory and swaps when it holds something newer; never fails. One look at a time. */
  async look(): Promise<void> {
    if (this.#looking !== null) {
      this.#again = true;
      return this.#looking;
    }
    this.#looking = (async () => {
      do {
        this.#again = false;
        await this.#lookOnce().catch((error: unknown) => {
          this.#log.warn({ err: error }, "the configuration directory cannot be read");
        });
      } while (this.#again && !this.#abort.signal.aborted);
      this.#looking = null;
    })();
    return this.#looking;
  }

  async #lookOnce(): Promise<void> {
    await this.#watch();
    const directory = await resolveView(this.#directory);
    if (directory === null) return;
    const found = await Promise.all(
      slots.map(async (slot) => ({ slot, view: await readIndex(directory, slot) })),
    );
    for (const { slot, view } of found) {
      if (view.state !== "found") this.#waiting.end(slot);
      if (view.state === "empty") this.#judged.delete(slot);
    }
    const newestFirst = found
      .filter(({ view }) => view.state !== "empty")
      .sort((one, other) => serialOf(other.view) - serialOf(one.view));
    for (const { slot, view } of newestFirst) {
      if (view.state === "empty" || this.#judged.get(slot)?.text === view.text) continue;
      if (view.state === "rejected") {
        this.#reject(slot, view.text, view.rejection);
        continue;
      }
      if (this.#current !== null && view.index.serial <= this.#current.index.serial) {
        // An index that can be read again ends an earlier rejection of its slot.
        this.#judged.delete(slot);
        this.#waiting.end(slot);
        continue;
      }
      const result = await this.#readSlot(directory, slot, view.index);
      if (result.state === "pending") {
        const overdue = this.#waiting.note(slot, view.text, view.index.serial, result.lacks);
        if (overdue !== null) this.#tell(slot, overdue);
        continue;
      }
      this.#waiting.end(slot);
      if (result.state === "rejected") this.#reject(slot, view.text, result.rejection);
      if (result.state !== "complete") continue;
      this.#judged.set(slot, { text: view.text, rejection: null });
      this.#swap(result.snapshot);
      return;
    }
  }

  /** Reads, verifies and validates everything that an index names. */
  async #readSlot(directory: string, slot: Slot, index: SnapshotIndex): Promise<SlotView> {
    const { serial } = index;
    const rejected = (error: string): SlotView => ({ state: "rejected", rejection: { serial, error } });
    const routingBytes = await readShards(directory, slot, index.routing);
    const credentialBytes = await readShards(directory, slot, index.credentials);
    if (routingBytes === "foreign" || credentialBytes === "foreign") {
      return rejected(`the index of slot ${slot} names files of another slot`);
    }
    if ("lacks" in routingBytes) return { state: "pending", lacks: routingBytes.lacks };
    if ("lacks" in credentialBytes) return { state: "pending", lacks: credentialBytes.lacks };
    const text = await unpack(routingBytes);
    if (text === null) return rejected("the routing part cannot be unpacked");
    const routing = await this.#routing.read(text);
    if (typeof routing === "string") return rejected(routing);
    const credentials = await readCredentials(credentialBytes);
    if (typeof credentials === "string") return rejected(credentials);
    if (routing.serial !== serial || credentials.serial !== serial) {
      return rejected(
        `index, routing and credentials are of serials ${serial}, ${routing.serial}, ${credentials.serial}`,
      );
    }
    return { state: "complete", snapshot: new Snapshot(index, routing, credentials) };
  }

  #swap(snapshot: Snapshot): void {
    const { serial, hash } = snapshot.index;
    this.#current = snapshot;
    metrics.configReloads.inc({ outcome: "served" });
    metrics.configInfo.reset();
    metrics.configInfo.set({ hash, serial: String(serial) }, 1);
    this.#log.info({ serial, hash, routes: snapshot.routing.routes.length }, "serving a new configuration");
    for (const listener of this.#listeners) {
      try {
        listener(snapshot);
      } catch (error) {
        this.#log.error({ err: error }, "a listener failed on a new configuration");
      }
    }
  }

  #reject(slot: Slot, text: string, rejection: Rejection): void {
    this.#judged.set(slot, { text, rejection });
    this.#tell(slot, rejection);
  }

  #tell(slot: Slot, rejection: Rejection): void {
    metrics.configReloads.inc({ outcome: "rejected" });
    this.#log.error({ slot, ...rejection }, "a published configuration cannot be served");
  }

  /** Watches the directory itself; again when it was replaced. If that fails, the poll alone finds changes. */
  async #watch(): Promise<void> {
    const found = await stat(this.#directory, { bigint: true }).catch(() => null);
    if (this.#watcher !== null && found?.ino === this.#watcher.inode) return;
    this.#watcher?.fs.close();
    this.#watcher = null;
    if (found === null || this.#abort.signal.aborted) return;
    try {
      const fs = watch(this.#directory, { persistent: false }, () => this.#soon());
      fs.on("error", () => {
        fs.close();
        if (this.#watcher?.fs === fs) this.#watcher = null;
      });
      this.#watcher = { fs, inode: found.ino };
    } catch (error) {
      this.#log.debug({ err: error }, "the configuration directory cannot be watched; it is polled");
    }
  }

  #soon(): void {
    if (this.#timer !== null || this.#abort.signal.aborted) return;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      inBackground(this.look(), this.#log, "reading the configuration");
    }, SETTLE_MS);
  }
}

const serialOf = (view: IndexView): number => (view.state === "found" ? view.index.serial : -1);

/** Resolves the directory that a projected volume points to now, so that all files are of one moment; null: not there. */
async function resolveView(directory: string): Promise<string | null> {
  return realpath(join(directory, "..data")).catch(() => realpath(directory).catch(() => null));
}

/** Reads a file of at most `maxBytes`; null when it is missing or larger. */
async function readBounded(path: string, maxBytes: number): Promise<Buffer | null> {
  try {
    await using file = await open(path);
    const { size } = await file.stat();
    if (size > maxBytes) return null;
    const bytes = await file.readFile();
    return bytes.length > maxBytes ? null : bytes;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT" || code === "EISDIR" || code === "ENOTDIR") return null;
    throw error;
  }
}

async function readIndex(directory: string, slot: Slot): Promise<IndexView> {
  const bytes = await readBounded(join(directory, `${slot}-index.json`), MAX_INDEX_BYTES);
  if (bytes === null || bytes.length === 0) return { state: "empty" };
  const text = bytes.toString("utf8");
  const parsed = indexSchema.safeParse(parseJson(text));
  if (!parsed.success) {
    return { state: "rejected", text, rejection: { serial: null, error: describe("index", parsed.error) } };
  }
  const index = parsed.data;
  if (!ACCEPTED_SCHEMA_VERSIONS.includes(index.schemaVersion)) {
    const error = `schema version ${index.schemaVersion} is not one of ${ACCEPTED_SCHEMA_VERSIONS.join(", ")}`;
    return { state: "rejected", text, rejection: { serial: index.serial, error } };
  }
  return { state: "found", text, index };
}

/** Reads all pieces as one buffer, or returns what one lacks: it is missing or does not match its digest (yet). */
async function readShards(
  directory: string,
  slot: Slot,
  shards: SnapshotIndex["routing"],
): Promise<Buffer | { readonly lacks: string } | "foreign"> {
  const pieces: Buffer[] = [];
  for (const { file, sha256 } of shards) {
    if (!/^[ab]-[a-z0-9-]+\.gz$/.test(file) || !file.startsWith(`${slot}-`)) return "foreign";
    const piece = await readBounded(join(directory, file), MAX_SHARD_BYTES);
    if (piece === null) return { lacks: `${file} is missing or too large` };
    if (createHash("sha256").update(piece).digest("hex") !== sha256)
      return { lacks: `${file} does not have the digest that the index names` };
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/** Reads the credentials part, or returns that it is not valid: never why, so that no secret can show. */
async function readCredentials(bytes: Buffer): Promise<Credentials | string> {
  const text = await unpack(bytes);
  const parsed = credentialsSchema.safeParse(text === null ? undefined : parseJson(text.toString("utf8")));
  return parsed.success ? parsed.data : "the credentials part is not valid";
}

/** Returns null for bytes that are not gzipped, or unpack to more than the limit. */
async function unpack(bytes: Buffer): Promise<Buffer | null> {
  return unzip(bytes, { maxOutputLength: MAX_PART_BYTES }).catch(() => null);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
