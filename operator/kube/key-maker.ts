/** Makes the keys that Organizations ask for, each in the Secret that they name for it. */
import { newKey } from "../new-key.ts";
import type { WantedKey } from "../plan/objects.ts";
import { type Call, isStatus, type KubeApi, KubeError } from "./client.ts";
import { inParallel, inTurns, isDoneWithin } from "./in-parallel.ts";
import { namespaceOf } from "./informer.ts";
import { NotLeading } from "./lease.ts";
import { NamespaceTurns } from "./namespace-turns.ts";
import type { ReferencedSecrets } from "./referenced-secrets.ts";
import { readSecret, secretPath, secretSchema } from "./secret.ts";

/** Label of Secrets that were made for a key, so that people find those that nobody needs any more. */
const LABEL = "gapura.dev/generated-key";
/** Annotation of Secrets in which a key was made: the Organization whose key it is. */
const ORGANIZATION = "gapura.dev/organization";
const WRITES_AT_ONCE = 8;
/** Time in which keys are begun. Others are left to the next round: everybody's changes wait while keys are made. */
const MAKING_MS = 1000;
/** The same for keys that no round waits for: where calls take long, a round for every few would take longer than they do. */
const MAKING_SLOWLY_MS = 10_000;
/** How much longer a round waits for keys that were begun; a webhook of their namespace, say, may make them take longer still. */
const LATE_MS = 500;
/** Secrets in which keys are being made: from so many on no others are begun, and none in namespaces that took long before. */
const MOST_LATE = 32;
const MOST_SLOW = 16;
/** Of these, those of one namespace: where its calls hang, others' have the rest. */
const MOST_SLOW_OF_ONE = 14;
/** A key that was refused is tried again after this time, then after twice as long, and so on. */
const FIRST_REFUSED_MS = 20_000;
const LONGEST_REFUSED_MS = 5 * 60_000;

/** Why a key could not be made, and when it is worth another try. Moments are monotonic milliseconds. */
interface Refused {
  /** The API server's message. */
  readonly words: string;
  /** Resource version of the Secret; undefined: there was none. */
  readonly version: string | undefined;
  readonly pauseMs: number;
  readonly notBefore: number;
}

/** Callbacks for what becomes of keys that are being made. */
export interface MakingListener {
  readonly made: (key: WantedKey) => void;
  readonly failed: (error: unknown) => void;
  /** Called when keys that took too long to be waited for are done. */
  readonly late: () => void;
}

/** Keys that are made into one Secret. */
interface Group {
  readonly namespace: string;
  readonly keys: readonly WantedKey[];
}

/** Keys of a namespace that took long, which no round waits for. */
interface SlowGroup {
  readonly group: Group;
  /** After this moment it is left to the next round. */
  readonly deadline: number;
  readonly permit: () => void;
  readonly listener: MakingListener;
}

export class KeyMaker {
  readonly #api: KubeApi;
  readonly #secrets: ReferencedSecrets;
  /** Keys that the API server does not let us make, by `namespace/name/key`. */
  readonly #refused = new Map<string, Refused>();
  /** Number of Secrets in which keys are being made, by namespace. */
  readonly #making = new Map<string, number>();
  readonly #turns = new NamespaceTurns();
  /** Those that wait for a place. */
  #slow: SlowGroup[] = [];

  /** @param secrets knows the versions of Secrets, and takes note of keys that are made */
  constructor(api: KubeApi, secrets: ReferencedSecrets) {
    this.#api = api;
    this.#secrets = secrets;
  }

  /** Why keys could not be made when it was last tried, by `namespace/name/key`. */
  get refused(): ReadonlyMap<string, string> {
    return new Map([...this.#refused].map(([id, { words }]) => [id, words]));
  }

  /**
   * Makes keys for about a second, those of one Secret one after another, namespaces in turns. A key that cannot be made holds
   * up no other, and is not tried again for a while unless its Secret changes. A key that takes longer is not waited for, and
   * neither are later ones of its namespace: `late` is called when it is done, and until then no further key of the namespace
   * is begun.
   * @param wanted all keys that have to be made now: the refusals of others are forgotten.
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

  /** Makes keys and waits for those that are done in time. @returns as `make` does. @throws NotLeading */
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

  /** Makes keys, in as many Secrets at a time as may be under way, and waits for none. */
  #makeSlow(groups: readonly Group[], permit: () => void, listener: MakingListener): void {
    const deadline = performance.now() + MAKING_SLOWLY_MS;
    // Those of other namespaces are wanted by this round too, or not any more.
    const waiting = this.#slow.filter(({ group }) => this.#making.has(group.namespace));
    this.#slow = [...waiting, ...groups.map((group) => ({ group, deadline, permit, listener }))];
    this.#beginSlow();
  }

  #beginSlow(): void {
    // All at once: there may be very many of them, and each one is looked for among all.
    const now = performance.now();
    this.#slow = this.#slow.filter(({ deadline }) => now <= deadline);
    while (this.#underWay < MOST_SLOW) {
      const next = this.#takeSlow();
      if (next === undefined) return;
      this.#makeSlowly(next)
        .catch((error: unknown) => {
          // Whoever leads no more makes none of the others either.
          this.#slow = [];
          next.listener.failed(error);
        })
        .finally(() => this.#beginSlow());
    }
  }

  /** Takes the next one of the namespace that has the fewest places. */
  #takeSlow(): SlowGroup | undefined {
    const placesOf = ({ group }: SlowGroup) => this.#making.get(group.namespace) ?? 0;
    let next: SlowGroup | undefined;
    for (const one of this.#slow) if (next === undefined || placesOf(one) < placesOf(next)) next = one;
    if (next === undefined || placesOf(next) >= MOST_SLOW_OF_ONE) return undefined;
    this.#slow.splice(this.#slow.indexOf(next), 1);
    return next;
  }

  /** @throws NotLeading */
  async #makeSlowly({ group, deadline, permit, listener }: SlowGroup): Promise<void> {
    const startedAt = performance.now();
    let isMade = false;
    const made = (key: WantedKey) => {
      isMade = true;
      listener.made(key);
    };
    await this.#makeGroup(group, deadline, permit, { ...listener, made });
    if (!isMade) return;
    const isQuick = performance.now() - startedAt < MAKING_MS && !this.#making.has(group.namespace);
    if (isQuick) this.#turns.wasQuick(group.namespace);
    listener.late();
  }

  /** Number of Secrets in which keys are being made. */
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
      let isThere = false;
      for (const key of keys) {
        if (performance.now() > deadline) return false;
        if (await this.#tryKey(key, isThere, permit, listener)) isThere = true;
      }
      return true;
    } finally {
      const others = (this.#making.get(namespace) ?? 1) - 1;
      if (others > 0) this.#making.set(namespace, others);
      else this.#making.delete(namespace);
    }
  }

  /**
   * @param isThere whether its Secret is known to be there, though the watch may not have shown it yet.
   * @returns whether the key is in its Secret now.
   * @throws NotLeading
   */
  async #tryKey(
    key: WantedKey,
    isThere: boolean,
    permit: () => void,
    { made, failed }: Pick<MakingListener, "made" | "failed">,
  ): Promise<boolean> {
    try {
      if (await this.#createKey(key, isThere, permit)) made(key);
      this.#refused.delete(idOf(key));
      return true;
    } catch (error) {
      if (error instanceof NotLeading) throw error;
      this.#noteFailure(key, error);
      failed(error);
      return false;
    }
  }

  /** Remembers a refusal (quota, admission webhook or policy, missing right): a person has to act. Other failures pass. */
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
   * Makes a key and stores it, never over a value. A Secret that it creates has no owner: it would be deleted with the
   * Organization, which has to get its keys back when it is declared again with the same id (rule 1.16).
   * @returns false when there is a value already.
   */
  async #createKey(wanted: WantedKey, isThere: boolean, permit: () => void): Promise<boolean> {
    const value = Buffer.from(newKey(wanted.form)).toString("base64");
    if (!isThere && (await this.#createSecret(wanted, value, permit))) return true;
    return await this.#addTo(wanted, value, permit);
  }

  /** @returns false when the Secret is there already. */
  async #createSecret(wanted: WantedKey, value: string, permit: () => void): Promise<boolean> {
    const { namespace, secret: name, key, owner } = wanted;
    if (this.#secrets.versionOf(`${namespace}/${name}`) !== undefined) return false;
    const body = {
      apiVersion: "v1",
      kind: "Secret",
      type: "Opaque",
      metadata: {
        name,
        namespace,
        labels: { [LABEL]: "true" },
        annotations: { [ORGANIZATION]: owner.name },
      },
      data: { [key]: value },
    };
    try {
      await this.#store(wanted, { method: "POST", path: secretPath(namespace), body, permit });
      return true;
    } catch (error) {
      // The watch has not shown it yet.
      if (error instanceof KubeError && error.reason === "AlreadyExists") return false;
      throw error;
    }
  }

  /** @returns false when the Secret has a value already. */
  async #addTo(wanted: WantedKey, value: string, permit: () => void): Promise<boolean> {
    const { namespace, secret: name, key, owner } = wanted;
    const existing = await readSecret(this.#api, namespace, name);
    // It went meanwhile; the next round makes it.
    if (existing === null) throw new KubeError(404, "NotFound", `secrets "${name}" not found`);
    if (Object.hasOwn(existing.data, key) && existing.data[key] !== "") {
      this.#secrets.remember(`${namespace}/${name}`, existing, key);
      return false;
    }
    // The version: the write is refused when somebody else wrote since.
    const { resourceVersion } = existing.metadata;
    const body = {
      metadata: { resourceVersion, annotations: { [ORGANIZATION]: owner.name } },
      data: { [key]: value },
    };
    await this.#store(wanted, {
      method: "PATCH",
      path: secretPath(namespace, name),
      patch: "merge",
      body,
      permit,
    });
    return true;
  }

  async #store({ namespace, secret, key }: WantedKey, call: Call): Promise<void> {
    const stored = secretSchema.parse(await this.#api.call(call));
    this.#secrets.remember(`${namespace}/${secret}`, stored, key);
  }
}

const idOf = ({ namespace, secret, key }: WantedKey): string => `${namespace}/${secret}/${key}`;
