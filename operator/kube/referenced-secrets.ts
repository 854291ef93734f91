/**
 * Secrets that our objects name, and no others: the names of all are watched without their values, and only what is
 * referenced in an object's own namespace is read.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { newKey } from "../new-key.ts";
import { MAX_CREDENTIAL } from "../plan/credentials.ts";
import type { Secrets, WantedKey } from "../plan/objects.ts";
import { type Call, isStatus, type KubeApi, KubeError } from "./client.ts";
import { KeptBytes } from "./kept-bytes.ts";
import { NotLeading } from "./lease.ts";
import { areListed, Informer, metadataSchema, namespaceOf, type Scoped, unseenOf } from "./informer.ts";

/** Of Secrets that were made for a key, so that people find those that nobody needs any more. */
const LABEL = "gapura.dev/generated-key";
/** Of the same: whose key it is. */
const ORGANIZATION = "gapura.dev/organization";
const READS_AT_ONCE = 8;
/** Everybody's changes wait while Secrets are read: a namespace that is not trusted is left to later rounds then. */
const READING_MS = 1000;
const WRITES_AT_ONCE = 8;
/** What we wrote ourselves counts for so long before the watch has told of it. */
const AHEAD_MS = 10_000;
/** Everybody's changes wait while keys are made: what is not begun by then is left to the next round. */
const MAKING_MS = 1000;
/** And for what was begun so long: a namespace whose Secrets take longer, as a webhook looks at them, is waited for no more. */
const LATE_MS = 500;
/** Namespaces whose keys are still being made while other rounds go on. */
const MOST_LATE = 8;
/** A resource version before any other: what is there has to be read. */
const OUTDATED = "0";
/** A key that was refused is tried again after this time, then after twice as long, and so on. */
const FIRST_REFUSED_MS = 20_000;
const LONGEST_REFUSED_MS = 5 * 60_000;

export const secretSchema = z.looseObject({
  metadata: metadataSchema,
  data: z.record(z.string(), z.string()).default({}),
  immutable: z.boolean().optional(),
});
export type Secret = z.infer<typeof secretSchema>;

export const secretPath = (namespace: string, name?: string): string =>
  `/api/v1/namespaces/${namespace}/secrets${name === undefined ? "" : `/${name}`}`;

/** null: there is none. */
export async function readSecret(api: KubeApi, namespace: string, name: string): Promise<Secret | null> {
  try {
    return secretSchema.parse(await api.call({ method: "GET", path: secretPath(namespace, name) }));
  } catch (error) {
    if (isStatus(error, 404)) return null;
    throw error;
  }
}

/** Data keys that are named, by Secret (`namespace/name`). */
type Referenced = ReadonlyMap<string, ReadonlySet<string>>;

interface Value {
  readonly version: string;
  /** Monotonic milliseconds. */
  readonly readAt: number;
  /** What was asked for, there or not: the rest is not kept. */
  readonly keys: ReadonlySet<string>;
  readonly data: Readonly<Record<string, string>>;
  readonly immutable: boolean;
}

/** Why a key could not be made, and when it is worth another try. Moments are monotonic milliseconds. */
interface Refused {
  /** The API server's. */
  readonly words: string;
  /** Of the Secret; undefined: there was none. */
  readonly version: string | undefined;
  readonly pauseMs: number;
  readonly notBefore: number;
}

/** Whoever is told what becomes of keys that are being made. */
export interface MakingListener {
  readonly made: (key: WantedKey) => void;
  readonly failed: (error: unknown) => void;
  /** Some took so long that nobody waited for them; now they are done, made or not. */
  readonly late: () => void;
}

export interface ReferencedSecretsOptions {
  readonly api: KubeApi;
  /** Empty: all. */
  readonly namespaces: readonly string[];
  /** Whether the Secrets of the namespace may be left to later rounds when there are many to be read. */
  readonly mayWait: (namespace: string) => boolean;
  /** Characters of values that are kept of a namespace; null: all. What is beyond counts as too long for a credential. */
  readonly mostBytes: (namespace: string) => number | null;
  /** A Secret of the namespace that is referenced changed, appeared or went. */
  readonly changed: (namespace: string) => void;
  /** Any Secret did; its resource version, null: it is gone. Must only take a note. */
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
  /** Those of each namespace whose values were not kept. */
  readonly #leftOut = new Map<string, Set<string>>();
  #referenced: Referenced = new Map();
  readonly #behind = new Set<string>();
  #unread = new Set<string>();
  /** Keys that the API server does not let us make, by `namespace/name/key`. */
  readonly #refused = new Map<string, Refused>();
  /** How many Secrets of each namespace keys are being made in. */
  readonly #making = new Map<string, number>();

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
   * What is named of the Secrets that exist; reads those that changed, namespaces in turns. A Secret that cannot be read now,
   * or is left to a later round, keeps the value that was read before.
   * @throws when the API server does not answer for one that was never read.
   */
  async read(named: Referenced): Promise<Secrets> {
    this.#referenced = named;
    for (const key of this.#values.keys()) if (!named.has(key)) this.#forget(key);
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

  /** Namespaces of whose Secrets some were left to a later round when they were last read, or may have room since. */
  get behind(): ReadonlySet<string> {
    return this.#behind;
  }

  /** Those of them of which something was never read: what is there is not known. */
  get unread(): ReadonlySet<string> {
    return this.#unread;
  }

  /** Those of them (`namespace/name`) that take no further data key. */
  get immutable(): ReadonlySet<string> {
    return new Set([...this.#values].flatMap(([key, value]) => (value.immutable ? [key] : [])));
  }

  /** Why keys could not be made when it was last tried, by `namespace/name/key`. */
  get refused(): ReadonlyMap<string, string> {
    return new Map([...this.#refused].map(([id, { words }]) => [id, words]));
  }

  /**
   * Makes keys for about a second, those of one Secret one after another, namespaces in turns. One that cannot be made keeps
   * no other from being made, and is not tried again for a while unless its Secret changes. What takes longer is not waited
   * for, and `late` is told when it is over; until then no further key of its namespace is begun.
   * @param wanted all that have to be made now: why others were refused is forgotten.
   * @returns false when some have not had their turn.
   * @throws NotLeading
   */
  async createKeys(
    wanted: readonly WantedKey[],
    permit: () => void,
    { made, failed, late }: MakingListener,
  ): Promise<boolean> {
    const ids = new Set(wanted.map(idOf));
    for (const id of this.#refused.keys()) if (!ids.has(id)) this.#refused.delete(id);
    if (this.#making.size >= MOST_LATE) return true;
    const deadline = performance.now() + MAKING_MS;
    let hadTheirTurn = true;
    const due = wanted.filter((key) => this.#isDue(key) && !this.#making.has(key.namespace));
    const bySecret = Map.groupBy(due, ({ namespace, secret }) => `${namespace}/${secret}`);
    const groups = inTurns([...bySecret.values()], ([key]) => key?.namespace);
    const making = inParallel(groups, WRITES_AT_ONCE, async (keys) => {
      const namespace = keys[0]?.namespace ?? "";
      this.#making.set(namespace, (this.#making.get(namespace) ?? 0) + 1);
      try {
        for (const key of keys) {
          if (performance.now() > deadline) {
            hadTheirTurn = false;
            return;
          }
          await this.#tryKey(key, permit, { made, failed });
        }
      } finally {
        const others = (this.#making.get(namespace) ?? 1) - 1;
        if (others > 0) this.#making.set(namespace, others);
        else this.#making.delete(namespace);
      }
    });
    if (await isDoneWithin(MAKING_MS + LATE_MS, making)) return hadTheirTurn;
    making.then(late, failed);
    return false;
  }

  /** @throws NotLeading */
  async #tryKey(
    key: WantedKey,
    permit: () => void,
    { made, failed }: Pick<MakingListener, "made" | "failed">,
  ): Promise<void> {
    try {
      if (await this.#createKey(key, permit)) made(key);
      this.#refused.delete(idOf(key));
    } catch (error) {
      if (error instanceof NotLeading) throw error;
      this.#noteFailure(key, error);
      failed(error);
    }
  }

  /** After a quota, an admission webhook or policy, a right that was taken away a person has to act. The rest passes. */
  #noteFailure(wanted: WantedKey, error: unknown): void {
    const id = idOf(wanted);
    const before = this.#refused.get(id);
    this.#refused.delete(id);
    if (!(error instanceof KubeError) || !isStatus(error, 400, 403, 413, 422)) return;
    const pauseMs =
      before === undefined ? FIRST_REFUSED_MS : Math.min(LONGEST_REFUSED_MS, 2 * before.pauseMs);
    this.#refused.set(id, {
      words: error.message,
      version: this.#version(`${wanted.namespace}/${wanted.secret}`),
      pauseMs,
      notBefore: performance.now() + pauseMs,
    });
  }

  #isDue(wanted: WantedKey): boolean {
    const refused = this.#refused.get(idOf(wanted));
    if (refused === undefined || performance.now() >= refused.notBefore) return true;
    return refused.version !== this.#version(`${wanted.namespace}/${wanted.secret}`);
  }

  /**
   * Makes a key and stores it, never over a value. A Secret that was made has no owner: it would be deleted with the
   * Organization, and the same id has to restore its keys (rule 1.16).
   * @returns false when there is a value already.
   */
  async #createKey(wanted: WantedKey, permit: () => void): Promise<boolean> {
    const { namespace, secret: name, key, form } = wanted;
    const value = Buffer.from(newKey(form)).toString("base64");
    const existing = await readSecret(this.#api, namespace, name);
    if (existing !== null && Object.hasOwn(existing.data, key) && existing.data[key] !== "") {
      this.#remember(`${namespace}/${name}`, existing, key);
      return false;
    }
    const call: Call =
      existing === null
        ? {
            method: "POST",
            path: secretPath(namespace),
            body: {
              apiVersion: "v1",
              kind: "Secret",
              type: "Opaque",
              metadata: {
                name,
                namespace,
                labels: { [LABEL]: "true" },
                annotations: { [ORGANIZATION]: wanted.owner.name },
              },
              data: { [key]: value },
            },
          }
        : {
            method: "PATCH",
            path: secretPath(namespace, name),
            patch: "merge",
            // Refused when somebody wrote it since.
            body: {
              metadata: {
                resourceVersion: existing.metadata.resourceVersion,
                annotations: { [ORGANIZATION]: wanted.owner.name },
              },
              data: { [key]: value },
            },
          };
    const made = await this.#api.call({ ...call, permit });
    this.#remember(`${namespace}/${name}`, secretSchema.parse(made), key);
    return true;
  }

  #version(key: string): string | undefined {
    for (const { informer } of this.#informers) {
      const version = informer.get(key);
      if (version !== undefined) return version;
    }
    return undefined;
  }

  #isStale(key: string, keys: ReadonlySet<string>): boolean {
    const value = this.#values.get(key);
    const version = this.#version(key);
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
      // What is forbidden is as good as missing; a silent server is not: its Secrets may be there.
      if (!isStatus(error, 403) && !this.#values.has(key)) throw error;
    }
  }

  /** Of a Secret in which a key was made, or found. */
  #remember(id: string, secret: Secret, key: string): void {
    this.#keep(id, valueOf(secret, new Set([...(this.#referenced.get(id) ?? []), key])));
  }

  #keep(id: string, value: Value): void {
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
    if (!this.#values.delete(id)) return;
    const namespace = namespaceOf(id);
    const before = this.#kept.of(namespace);
    this.#kept.release(namespace, id);
    this.#leftOut.get(namespace)?.delete(id);
    if (this.#kept.of(namespace) < before) this.#readLeftOutAgain(namespace);
  }

  /** There may be room for their values now. Until they are read they stand for what they were: they are not missing. */
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

/** Of base64: a longer text is no credential, whatever line breaks stand at its end. */
const MAX_TEXT = 4 * MAX_CREDENTIAL;
/** Stands for every value that is longer than any that can be used: a namespace has thousands of Secrets of 1 MiB. */
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

/** Acts on all in their order, at most `width` at a time; the first failure is thrown. */
export async function inParallel<Item>(
  items: readonly Item[],
  width: number,
  act: (item: Item) => Promise<void>,
): Promise<void> {
  const queue = items.toReversed();
  const worker = async () => {
    for (let item = queue.pop(); item !== undefined; item = queue.pop()) await act(item);
  };
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, worker));
}

/** False: it goes on. @throws what it throws in time. */
async function isDoneWithin(ms: number, work: Promise<void>): Promise<boolean> {
  const over = new AbortController();
  const late = sleep(ms, false, { signal: over.signal });
  try {
    return await Promise.race([work.then(() => true), late]);
  } finally {
    over.abort();
  }
}

/** One of each owner, then the next of each, and so on. */
function inTurns<Item>(items: readonly Item[], ownerOf: (item: Item) => unknown): Item[] {
  const ordered: Item[] = [];
  let queues = [...Map.groupBy(items, ownerOf).values()];
  for (let turn = 0; queues.length > 0; turn += 1) {
    queues = queues.filter(({ length }) => length > turn);
    ordered.push(...queues.flatMap((queue) => queue.slice(turn, turn + 1)));
  }
  return ordered;
}

const idOf = ({ namespace, secret, key }: WantedKey): string => `${namespace}/${secret}/${key}`;
