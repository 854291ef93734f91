/**
 * Keeps a copy of one kind of object up to date: list, then watch, again and again until it is stopped. After a failure
 * (reset, 410, 429, 5xx, silence) it waits with back-off, then watches from where it was or lists anew.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { AnswerTooLarge, isStatus, type KubeApi, KubeError, retryAfterMs } from "./client.ts";

/** Objects of a page. One that is too large is asked for again with a fourth of the objects, and so on. */
const PAGE = 500;
const SMALLER = 4;
/** The whole is listed anew after this time, against watches that lose events. */
const RELIST_MS = 10 * 60_000;
/** Bookmarks come every minute: a silence this long means a dead connection. */
const IDLE_MS = 90_000;
const WATCH_SECONDS = 240;
const FIRST_WAIT_MS = 200;
const LONGEST_WAIT_MS = 5000;
/** How long a refused list is waited for: at an install rights and definitions may come a moment after the pod. */
const REFUSED_MS = 10_000;
/** A watch that ends sooner than this counts as a failure, so that it cannot spin. */
const SHORT_WATCH_MS = 1000;

export const metadataSchema = z.looseObject({
  name: z.string(),
  namespace: z.string().default(""),
  uid: z.string(),
  resourceVersion: z.string(),
  labels: z.record(z.string(), z.string()).optional(),
  generation: z.number().int().optional(),
  creationTimestamp: z.string().optional(),
  deletionTimestamp: z.string().optional(),
});

const objectSchema = z.looseObject({ metadata: metadataSchema });
export type RawObject = z.infer<typeof objectSchema>;

const listSchema = z.object({
  metadata: z.object({ resourceVersion: z.string(), continue: z.string().optional() }),
  items: z.array(z.unknown()).nullable(),
});
const eventSchema = z.object({ type: z.string(), object: z.unknown() });
const markSchema = z.object({ metadata: z.object({ resourceVersion: z.string() }) });
const errorSchema = z.object({
  code: z.number(),
  reason: z.string().optional(),
  message: z.string().optional(),
});

interface Kept<Item> {
  readonly uid: string;
  readonly version: bigint;
  readonly item: Item;
}

export interface InformerOptions<Item> {
  readonly api: KubeApi;
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  /** Asks for metadata only. */
  readonly metadataOnly?: boolean;
  /** Returns what is kept of an object; null: nothing. `before`: what was kept of it until now. */
  readonly read: (object: RawObject, before: Item | undefined) => Item | null;
  /** Whether an item has to be read again at the next list, though the object has not changed. Default: none has. */
  readonly isPassing?: (item: Item) => boolean;
  /** Must only take a note: it is called while events are being read. */
  readonly changed: (key: string, before: Item | undefined, after: Item | undefined) => void;
  /** Called with every failure, before it is waited out. */
  readonly failed: (error: unknown) => void;
}

const accepts = {
  list: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
  watch: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
} as const;

export class Informer<Item> {
  readonly #options: InformerOptions<Item>;
  readonly #kept = new Map<string, Kept<Item>>();
  #version: string | null = null;
  /** The newest resource version that lists and watches have shown. */
  #newest = 0n;
  #listedAt = -Infinity;
  #synced = false;
  /** With what every list is answered, and since when, monotonic; null: not with 403 or 404, or one was answered. */
  #refusal: { readonly status: 403 | 404; readonly since: number } | null = null;
  #failures = 0;
  /** Whether a watch found its version expired, and none has shown anything since: then a list alone is no success. */
  #expired = false;

  constructor(options: InformerOptions<Item>) {
    this.#options = options;
  }

  /** True from the first whole list on. Before that, an object that is missing here may well exist. */
  get synced(): boolean {
    return this.#synced;
  }

  /** True when the first list has been refused for a while: what is there will not be known soon. */
  get refused(): boolean {
    return this.#hasLongBeen(403);
  }

  /** True when the server has known no such kind for a while: its definition is missing. */
  get isUndefined(): boolean {
    return this.#hasLongBeen(404);
  }

  #hasLongBeen(status: 403 | 404): boolean {
    return this.#refusal?.status === status && performance.now() - this.#refusal.since > REFUSED_MS;
  }

  get(key: string): Item | undefined {
    return this.#kept.get(key)?.item;
  }

  values(): Item[] {
    return [...this.#kept.values()].map(({ item }) => item);
  }

  /** Takes an object that a write returned, ahead of the watch; not when the watch has already shown its deletion. */
  accept(object: unknown): void {
    const parsed = objectSchema.safeParse(object);
    if (parsed.success && this.#kept.has(keyOf(parsed.data))) this.#keep(parsed.data);
  }

  /** Replaces what is kept of an object. */
  replace(key: string, item: Item): void {
    const before = this.#kept.get(key);
    if (before === undefined) return;
    this.#kept.set(key, { ...before, item });
    this.#options.changed(key, before.item, item);
  }

  /** Runs until the signal aborts; never fails. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        if (this.#version === null || performance.now() - this.#listedAt > RELIST_MS)
          await this.#list(signal);
        const startedAt = performance.now();
        await this.#watch(signal);
        if (performance.now() - startedAt < SHORT_WATCH_MS) throw new Error("the watch ended at once");
      } catch (error) {
        if (signal.aborted) return;
        if (isStatus(error, 410)) {
          this.#version = null;
          this.#expired = true;
        }
        if (!this.#synced) this.#noteRefusal(error);
        this.#options.failed(error);
        const wait =
          Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#failures) * (0.5 + Math.random() / 2);
        this.#failures += 1;
        await sleep(Math.max(wait, retryAfterMs(error)), undefined, { signal }).catch(() => {});
      }
    }
  }

  async #list(signal: AbortSignal): Promise<void> {
    const seen = new Set<string>();
    let next: string | undefined;
    let version = "";
    let limit = PAGE;
    do {
      const answer = await this.#page(next, limit, signal);
      ({ limit } = answer);
      const page = listSchema.parse(answer.list);
      this.#noticeRestore(page.metadata.resourceVersion);
      for (const item of page.items ?? []) {
        const object = objectSchema.parse(item);
        seen.add(keyOf(object));
        this.#keep(object);
      }
      version = page.metadata.resourceVersion;
      next = page.metadata.continue === "" ? undefined : page.metadata.continue;
    } while (next !== undefined);
    for (const key of this.#kept.keys()) if (!seen.has(key)) this.#remove(key);
    this.#version = version;
    this.#listedAt = performance.now();
    if (!this.#expired) this.#failures = 0;
    this.#synced = true;
    this.#refusal = null;
  }

  #noteRefusal(error: unknown): void {
    const status = isStatus(error, 403) ? 403 : isStatus(error, 404) ? 404 : null;
    if (status === this.#refusal?.status) return;
    this.#refusal = status === null ? null : { status, since: performance.now() };
  }

  /** Reads a page from `next` on, of `limit` objects or, if they are too large, fewer; returns the limit that worked. */
  async #page(
    next: string | undefined,
    limit: number,
    signal: AbortSignal,
  ): Promise<{ readonly list: unknown; readonly limit: number }> {
    const { api, path, query, metadataOnly } = this.#options;
    try {
      const list = await api.call({
        method: "GET",
        path,
        query: { ...query, limit: String(limit), ...(next === undefined ? {} : { continue: next }) },
        ...(metadataOnly === true ? { accept: accepts.list } : {}),
        signal,
      });
      return { list, limit };
    } catch (error) {
      if (!(error instanceof AnswerTooLarge) || limit === 1) throw error;
      return await this.#page(next, Math.ceil(limit / SMALLER), signal);
    }
  }

  /** Forgets the kept versions when an older one is listed: etcd was restored from a backup, and counts on from there. */
  #noticeRestore(version: string): void {
    const listed = BigInt(version);
    const isRestored = listed < this.#newest;
    this.#newest = listed;
    if (!isRestored) return;
    for (const [key, kept] of this.#kept) this.#kept.set(key, { ...kept, version: 0n });
  }

  async #watch(signal: AbortSignal): Promise<void> {
    const { api, path, query, metadataOnly } = this.#options;
    const events = api.watch({
      path,
      query: {
        ...query,
        resourceVersion: this.#version ?? "",
        allowWatchBookmarks: "true",
        // Spread, so that watches do not all end at the same moment.
        timeoutSeconds: String(WATCH_SECONDS + Math.floor(Math.random() * WATCH_SECONDS)),
      },
      accept: metadataOnly === true ? accepts.watch : undefined,
      idleMs: IDLE_MS,
      signal,
    });
    for await (const raw of events) {
      const { type, object } = eventSchema.parse(raw);
      if (type === "ERROR") {
        const fault = errorSchema.safeParse(object).data;
        throw new KubeError(fault?.code ?? 500, fault?.reason ?? "", fault?.message ?? "the watch failed");
      }
      if (type !== "BOOKMARK") {
        const parsed = objectSchema.parse(object);
        if (type === "DELETED") this.#remove(keyOf(parsed));
        else this.#keep(parsed);
      }
      this.#version = markSchema.parse(object).metadata.resourceVersion;
      this.#newest = BigInt(this.#version);
      this.#failures = 0;
      this.#expired = false;
    }
  }

  #keep(object: RawObject): void {
    const key = keyOf(object);
    const { uid, resourceVersion } = object.metadata;
    const version = BigInt(resourceVersion);
    const before = this.#kept.get(key);
    // Answers to writes and events of the watch overtake each other; the newer one counts.
    if (before !== undefined && before.version > version) return;
    if (before?.version === version && this.#options.isPassing?.(before.item) !== true) return;
    // Another object of the same name: the first was deleted while nothing was watched.
    if (before !== undefined && before.uid !== uid) this.#remove(key);
    const last = this.#kept.get(key)?.item;
    const item = this.#options.read(object, last);
    if (item === null) {
      this.#remove(key);
      return;
    }
    this.#kept.set(key, { uid, version, item });
    this.#options.changed(key, last, item);
  }

  #remove(key: string): void {
    const before = this.#kept.get(key);
    if (before === undefined) return;
    this.#kept.delete(key);
    this.#options.changed(key, before.item, undefined);
  }
}

/** The informer of one namespace; null: of all. */
export interface Scoped<Item> {
  readonly namespace: string | null;
  readonly informer: Informer<Item>;
}

/** Whether all that can be listed was. A namespace whose list is refused holds up no other. */
export const areListed = <Item>(observed: readonly Scoped<Item>[]): boolean =>
  observed.every(({ namespace, informer }) => informer.synced || (namespace !== null && informer.refused));

/** Returns the namespaces that were not listed: what is in them is not known. */
export const unseenOf = <Item>(observed: readonly Scoped<Item>[]): string[] =>
  observed.flatMap(({ namespace, informer }) => (namespace === null || informer.synced ? [] : [namespace]));

const keyOf = ({ metadata }: RawObject) => `${metadata.namespace}/${metadata.name}`;
export const namespaceOf = (key: string): string => key.slice(0, key.indexOf("/"));
