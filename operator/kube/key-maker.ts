/** Makes the keys that objects ask for, each into the Secret that is named for it. */
import { newKey } from "../new-key.ts";
import type { WantedKey } from "../plan/objects.ts";
import { type Call, isStatus, type KubeApi, KubeError } from "./client.ts";
import { inParallel, inTurns, isDoneWithin } from "./in-parallel.ts";
import { namespaceOf } from "./informer.ts";
import { NotLeading } from "./lease.ts";
import { NamespaceTurns } from "./namespace-turns.ts";
import type { ReferencedSecrets } from "./referenced-secrets.ts";
import { readSecret, secretPath, secretSchema } from "./secret.ts";

/** Of Secrets that were made for a key, so that people find those that nobody needs any more. */
const LABEL = "gapura.dev/generated-key";
/** Of the same: whose key it is. */
const ORGANIZATION = "gapura.dev/organization";
const WRITES_AT_ONCE = 8;
/** Everybody's changes wait while keys are made: what is not begun by then is left to the next round. */
const MAKING_MS = 1000;
/** What was begun by then is waited for so much longer, unless a webhook, say, makes its namespace's Secrets take longer still. */
const LATE_MS = 500;
/** Secrets in which keys are still being made while other rounds go on, and those in namespaces that took long before. */
const MOST_LATE = 32;
const MOST_SLOW = 16;
/** A key that was refused is tried again after this time, then after twice as long, and so on. */
const FIRST_REFUSED_MS = 20_000;
const LONGEST_REFUSED_MS = 5 * 60_000;

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
  /** Some took so long that nobody waited for them; now they are done. */
  readonly late: () => void;
}

/** Keys that are made into one Secret. */
interface Group {
  readonly namespace: string;
  readonly keys: readonly WantedKey[];
}

export class KeyMaker {
  readonly #api: KubeApi;
  readonly #secrets: ReferencedSecrets;
  /** Keys that the API server does not let us make, by `namespace/name/key`. */
  readonly #refused = new Map<string, Refused>();
  /** How many Secrets of each namespace keys are being made in. */
  readonly #making = new Map<string, number>();
  readonly #turns = new NamespaceTurns();

  /** @param secrets knows the versions of Secrets, and is told of what is made */
  constructor(api: KubeApi, secrets: ReferencedSecrets) {
    this.#api = api;
    this.#secrets = secrets;
  }

  /** Why keys could not be made when it was last tried, by `namespace/name/key`. */
  get refused(): ReadonlyMap<string, string> {
    return new Map([...this.#refused].map(([id, { words }]) => [id, words]));
  }

  /**
   * Makes keys for about a second, those of one Secret one after another, namespaces in turns. One that cannot be made keeps
   * no other from being made, and is not tried again for a while unless its Secret changes. What takes longer is not waited
   * for, nor is what is made later in its namespace, and `late` is told when it is over; until then no further key of its
   * namespace is begun.
   * @param wanted all that have to be made now: why others were refused is forgotten.
   * @returns false when some have not had their turn.
   * @throws NotLeading
   */
  async make(wanted: readonly WantedKey[], permit: () => void, listener: MakingListener): Promise<boolean> {
    const ids = new Set(wanted.map(idOf));
    for (const id of this.#refused.keys()) if (!ids.has(id)) this.#refused.delete(id);
    const due = wanted.filter((key) => this.#isDue(key));
    const bySecret = Map.groupBy(due, ({ namespace, secret }) => `${namespace}/${secret}`);
    const groups = [...bySecret].map(([id, keys]): Group => ({ namespace: namespaceOf(id), keys }));
    const ordered = inTurns(
      this.#turns.inOrder(groups, ({ namespace }) => namespace),
      ({ namespace }) => namespace,
    );
    const [quick = [], slow = []] = [false, true].map((isSlow) =>
      ordered.filter(({ namespace }) => this.#turns.isSlow(namespace) === isSlow),
    );
    this.#makeSlow(slow, permit, listener);
    return this.#underWay >= MOST_LATE || (await this.#makeQuick(quick, permit, listener));
  }

  /** Waits for what is done in time. @returns as `make` does. @throws NotLeading */
  async #makeQuick(groups: readonly Group[], permit: () => void, listener: MakingListener): Promise<boolean> {
    const deadline = performance.now() + MAKING_MS;
    let hadTheirTurn = true;
    const making = inParallel(groups, WRITES_AT_ONCE, async (group) => {
      if (!(await this.#makeGroup(group, deadline, permit, listener))) hadTheirTurn = false;
    });
    if (await isDoneWithin(MAKING_MS + LATE_MS, making)) return hadTheirTurn;
    for (const namespace of this.#making.keys()) this.#turns.tookLong(namespace);
    making.then(listener.late, listener.failed);
    return false;
  }

  /** Begins as many as may be under way. */
  #makeSlow(groups: readonly Group[], permit: () => void, listener: MakingListener): void {
    for (const group of groups.slice(0, Math.max(0, MOST_SLOW - this.#underWay))) {
      const startedAt = performance.now();
      let isMade = false;
      const made = (key: WantedKey) => {
        isMade = true;
        listener.made(key);
      };
      this.#makeGroup(group, startedAt + MAKING_MS, permit, { ...listener, made })
        .then(() => {
          if (!isMade) return;
          const isQuick = performance.now() - startedAt < MAKING_MS && !this.#making.has(group.namespace);
          if (isQuick) this.#turns.wasQuick(group.namespace);
          listener.late();
        })
        .catch(listener.failed);
    }
  }

  /** Secrets in which keys are being made. */
  get #underWay(): number {
    return [...this.#making.values()].reduce((sum, count) => sum + count, 0);
  }

  /** @returns whether all of the group had their turn. @throws NotLeading */
  async #makeGroup(
    { namespace, keys }: Group,
    deadline: number,
    permit: () => void,
    listener: MakingListener,
  ): Promise<boolean> {
    if (performance.now() > deadline) return false;
    this.#turns.begin(namespace);
    this.#making.set(namespace, (this.#making.get(namespace) ?? 0) + 1);
    try {
      for (const key of keys) {
        if (performance.now() > deadline) return false;
        await this.#tryKey(key, permit, listener);
      }
      return true;
    } finally {
      const others = (this.#making.get(namespace) ?? 1) - 1;
      if (others > 0) this.#making.set(namespace, others);
      else this.#making.delete(namespace);
    }
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
    if (!(error instanceof KubeError) || !isStatus(error, 400, 403, 413, 422)) {
      this.#turns.failed(wanted.namespace);
      return;
    }
    const pauseMs =
      before === undefined ? FIRST_REFUSED_MS : Math.min(LONGEST_REFUSED_MS, 2 * before.pauseMs);
    this.#refused.set(id, {
      words: error.message,
      version: this.#secrets.versionOf(`${wanted.namespace}/${wanted.secret}`),
      pauseMs,
      notBefore: performance.now() + pauseMs,
    });
  }

  #isDue(wanted: WantedKey): boolean {
    if (this.#making.has(wanted.namespace) || this.#turns.rests(wanted.namespace)) return false;
    const refused = this.#refused.get(idOf(wanted));
    if (refused === undefined || performance.now() >= refused.notBefore) return true;
    return refused.version !== this.#secrets.versionOf(`${wanted.namespace}/${wanted.secret}`);
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
      this.#secrets.remember(`${namespace}/${name}`, existing, key);
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
    this.#secrets.remember(`${namespace}/${name}`, secretSchema.parse(made), key);
    return true;
  }
}

const idOf = ({ namespace, secret, key }: WantedKey): string => `${namespace}/${secret}/${key}`;
