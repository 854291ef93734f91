/**
 * Secrets that our objects name, and no others: the names of all are watched without their values, and only what is
 * referenced in an object's own namespace is read.
 */
import { MAX_CREDENTIAL } from "../plan/credentials.ts";
import type { Secrets } from "../plan/objects.ts";
import { isStatus, type KubeApi } from "./client.ts";
import { inParallel, inTurns } from "./in-parallel.ts";
import { areListed, Informer, namespaceOf, type Scoped, unseenOf } from "./informer.ts";
import { KeptBytes } from "./kept-bytes.ts";
import { readSecret, type Secret, secretPath } from "./secret.ts";

const READS_AT_ONCE = 8;
/** After this time Secrets of untrusted namespaces are left to later rounds: everybody's changes wait for the reading. */
const READING_MS = 1000;
/** How long a version that the watch has not shown yet counts as the newest. */
const AHEAD_MS = 10_000;
/** A resource version older than any other: the Secret has to be read again. */
const OUTDATED = "0";

/** Referenced data keys, by Secret (`namespace/name`). */
type Referenced = ReadonlyMap<string, ReadonlySet<string>>;

interface Value {
  readonly version: string;
  /** Monotonic milliseconds. */
  readonly readAt: number;
  /** The data keys that were looked for, present or not; no others are kept. */
  readonly keys: ReadonlySet<string>;
  readonly data: Readonly<Record<string, string>>;
  readonly immutable: boolean;
}

export interface ReferencedSecretsOptions {
  readonly api: KubeApi;
  /** Empty: all. */
  readonly namespaces: readonly string[];
  /** Whether the Secrets of the namespace may be left to later rounds when there are many to be read. */
  readonly mayWait: (namespace: string) => boolean;
  /** Characters of values that are kept of a namespace; null: all. A value beyond counts as too long for a credential. */
  readonly mostBytes: (namespace: string) => number | null;
  /** Called when a referenced Secret of the namespace changed, appeared or went. */
  readonly changed: (namespace: string) => void;
  /** Called when any Secret did, with its resource version; null: it is gone. Must only take a note. */
  readonly seen: (key: string, version: string | null) => void;
  readonly failed: (error: unknown) => void;
}

export class ReferencedSecrets {
  readonly #api: KubeApi;
  readonly #mayWait: (namespace: string) => boolean;
  readonly #failed: (error: unknown) => void;
  /** Resource versions by `namespace/name`. */
  readonly #informers: readonly Scoped<string>[];
  #values = new Map<string, Value>();
  readonly #kept: KeptBytes;
  /** Secrets whose values were not kept, by namespace. */
  readonly #leftOut = new Map<string, Set<string>>();
  #referenced: Referenced = new Map();
  readonly #behind = new Set<string>();
  #unread = new Set<string>();
  /** The API server's words, by Secret. */
  #forbidden = new Map<string, string>();

  constructor({ api, namespaces, mayWait, mostBytes, changed, seen, failed }: ReferencedSecretsOptions) {
    this.#api = api;
    this.#kept = new KeptBytes(mostBytes);
    this.#mayWait = mayWait;
    this.#failed = failed;
    const scopes = namespaces.length === 0 ? [null] : namespaces;
    this.#informers = scopes.map((namespace) => ({
      namespace,
      informer: new Informer<string>({
        api,
        path: namespace === null ? "/api/v1/secrets" : secretPath(namespace),
        metadataOnly: true,
        read: ({ metadata }) => metadata.resourceVersion,
        changed: (key, _before, after) => {
          seen(key, after ?? null);
          if (!this.#referenced.has(key) || this.#values.get(key)?.version === after) return;
          if (after === undefined) this.#forget(key);
          changed(namespaceOf(key));
        },
        failed,
      }),
    }));
  }

  get synced(): boolean {
    return areListed(this.#informers);
  }

  /** Namespaces that could not be listed. */
  get unseen(): readonly string[] {
    return unseenOf(this.#informers);
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all(this.#informers.map(({ informer }) => informer.run(signal)));
  }

  /**
   * Returns the named values of the Secrets that exist. Reads those that changed, namespaces in turns; a Secret for which there
   * is no answer now, or that is left to a later round, keeps the value that was read before.
   * @throws when the API server does not answer for a Secret that was never read.
   */
  async read(named: Referenced): Promise<Secrets> {
    this.#referenced = named;
    for (const key of [...this.#values.keys(), ...this.#forbidden.keys()])
      if (!named.has(key)) this.#forget(key);
    this.#behind.clear();
    const stale = [...named].filter(([key, keys]) => this.#isStale(key, keys));
    const unread = new Set<string>();
    const deadline = performance.now() + READING_MS;
    await inParallel(
      inTurns(stale, ([key]) => namespaceOf(key)),
      READS_AT_ONCE,
      async ([key, keys]) => {
        const namespace = namespaceOf(key);
        if (performance.now() <= deadline || !this.#mayWait(namespace)) return await this.#fetch(key, keys);
        this.#behind.add(namespace);
        if (!this.#hasRead(key, keys)) unread.add(namespace);
      },
    );
    this.#unread = unread;
    const secrets = new Map<string, Readonly<Record<string, string>>>();
    for (const key of named.keys()) {
      const value = this.#values.get(key);
      if (value !== undefined) secrets.set(key, value.data);
    }
    return secrets;
  }

  /** Namespaces with Secrets that the last `read` left to a later round, or for which there may be room since. */
  get behind(): ReadonlySet<string> {
    return this.#behind;
  }

  /** Namespaces with a referenced value that was never read: what is there is not known. */
  get unread(): ReadonlySet<string> {
    return this.#unread;
  }

  /** The API server's words for each Secret (`namespace/name`) that was named, is there and may not be read. */
  get forbidden(): ReadonlyMap<string, string> {
    return new Map(this.#forbidden);
  }

  /** Referenced Secrets (`namespace/name`) that take no further data key. */
  get immutable(): ReadonlySet<string> {
    return new Set([...this.#values].flatMap(([key, value]) => (value.immutable ? [key] : [])));
  }

  /** Returns the resource version that a Secret (`namespace/name`) was last seen with; undefined: there is none. */
  versionOf(key: string): string | undefined {
    for (const { informer } of this.#informers) {
      const version = informer.get(key);
      if (version !== undefined) return version;
    }
    return undefined;
  }

  #isStale(key: string, keys: ReadonlySet<string>): boolean {
    const value = this.#values.get(key);
    const version = this.versionOf(key);
    const isFresh =
      value !== undefined &&
      (value.version === version ||
        (performance.now() - value.readAt < AHEAD_MS && isAhead(value.version, version)));
    if (isFresh) return !this.#hasRead(key, keys) || value.keys.size > keys.size;
    if (version !== undefined) return true;
    // Gone, or never there.
    this.#forget(key);
    return false;
  }

  /** Whether these data keys were looked for when the Secret was last read. */
  #hasRead(key: string, keys: ReadonlySet<string>): boolean {
    const value = this.#values.get(key);
    return value !== undefined && [...keys].every((one) => value.keys.has(one));
  }

  async #fetch(key: string, keys: ReadonlySet<string>): Promise<void> {
    const [namespace = "", name = ""] = key.split("/");
    try {
      const secret = await readSecret(this.#api, namespace, name);
      if (secret === null) this.#forget(key);
      else this.#keep(key, valueOf(secret, keys));
    } catch (error) {
      this.#failed(error);
      if (isStatus(error, 403)) this.#forbid(key, error.message);
      // One that the server does not answer for may exist.
      else if (!this.#values.has(key)) throw error;
    }
  }

  /** Takes note of a Secret in which a key was made, or found: the watch shows it only later. */
  remember(id: string, secret: Secret, key: string): void {
    this.#keep(id, valueOf(secret, new Set([...(this.#referenced.get(id) ?? []), key])));
  }

  #forbid(id: string, words: string): void {
    this.#forget(id);
    this.#forbidden.set(id, words);
  }

  #keep(id: string, value: Value): void {
    this.#forbidden.delete(id);
    const namespace = namespaceOf(id);
    const before = this.#kept.of(namespace);
    const texts = Object.values(value.data).filter((text) => text !== TOO_LONG);
    const hasRoom = this.#kept.take(
      namespace,
      id,
      texts.reduce((sum, { length }) => sum + length, 0),
    );
    const data = Object.fromEntries(Object.keys(value.data).map((key) => [key, TOO_LONG]));
    this.#values.set(id, hasRoom ? value : { ...value, data });
    if (this.#kept.of(namespace) < before) this.#readLeftOutAgain(namespace);
    if (hasRoom) this.#leftOut.get(namespace)?.delete(id);
    else this.#leftOut.set(namespace, (this.#leftOut.get(namespace) ?? new Set()).add(id));
  }

  #forget(id: string): void {
    this.#forbidden.delete(id);
    if (!this.#values.delete(id)) return;
    const namespace = namespaceOf(id);
    const before = this.#kept.of(namespace);
    this.#kept.release(namespace, id);
    this.#leftOut.get(namespace)?.delete(id);
    if (this.#kept.of(namespace) < before) this.#readLeftOutAgain(namespace);
  }

  /** Marks left-out Secrets to be read again, as there may be room now. Until then they count as too long, not as missing. */
  #readLeftOutAgain(namespace: string): void {
    const ids = this.#leftOut.get(namespace) ?? [];
    this.#leftOut.delete(namespace);
    for (const id of ids) {
      const value = this.#values.get(id);
      if (value === undefined) continue;
      this.#values.set(id, { ...value, version: OUTDATED });
      this.#behind.add(namespace);
    }
  }
}

const valueOf = (secret: Secret, keys: ReadonlySet<string>): Value => ({
  version: secret.metadata.resourceVersion,
  readAt: performance.now(),
  keys,
  data: decodeValues(secret.data, keys),
  immutable: secret.immutable === true,
});

const isAhead = (own: string, watched: string | undefined): boolean =>
  watched === undefined || BigInt(own) > BigInt(watched);

/** Longest base64 text that is decoded: a longer one is no credential, whatever line breaks stand at its end. */
const MAX_TEXT = 4 * MAX_CREDENTIAL;
/** Stands for every value that is too long to be used: a namespace may have thousands of Secrets of 1 MiB. */
const TOO_LONG = "?".repeat(MAX_CREDENTIAL + 1);

function decodeValues(
  data: Readonly<Record<string, string>>,
  keys: ReadonlySet<string>,
): Record<string, string> {
  return Object.fromEntries(
    [...keys].flatMap((key) => {
      const text = Object.hasOwn(data, key) ? data[key] : undefined;
      if (text === undefined) return [];
      return [[key, text.length > MAX_TEXT ? TOO_LONG : Buffer.from(text, "base64").toString()]];
    }),
  );
}
