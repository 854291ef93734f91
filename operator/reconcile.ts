/**
 * Kubernetes' reconcile loop (not that of the books, dataplane/reconcile.ts): observe → plan → publish → status, over ports
 * that a folder and a cluster implement. Nothing here knows which of the two it is.
 * Calls of one Reconciler must never overlap: its caller makes them one after another.
 */
import type { Slot, ConfigStatus } from "../dataplane/config/schema.ts";
import { compile, type CompileInput } from "./plan/compile.ts";
import type { Compiled } from "./plan/compiled.ts";
import { type Delivery, Holdings, type ObjectStatus, type PodReport, statusOf } from "./plan/conditions.ts";
import type { Declared, Secrets, WantedKey } from "./plan/objects.ts";
import type { Refusals } from "./plan/judge.ts";
import { knownOwners, type Owners, sameOwners } from "./plan/owners.ts";
import type { Published } from "./plan/prior.ts";
import { type Excess, leaveOut } from "./plan/room.ts";
import { chooseVersion, inVersion } from "./plan/schema-version.ts";
import {
  type SlotState,
  decodeSlots,
  encode,
  isSameContent,
  nextSlot,
  nextSerial,
  serialize,
  type SnapshotFile,
} from "./plan/shards.ts";
import type { Tenancy } from "./plan/tenancy.ts";
import { type Unseen, withUnseen } from "./plan/unseen.ts";

export interface Observation {
  readonly objects: readonly Declared[];
  readonly secrets: Secrets;
  /** The API server's words for each Secret (`namespace/name`) that is there and may not be read. Default: none. */
  readonly forbidden?: ReadonlyMap<string, string>;
  /** Secrets (`namespace/name`) that take no further data key. Default: none. */
  readonly immutable?: ReadonlySet<string>;
  /** Why keys could not be made, by `namespace/name/key`. Default: none failed. */
  readonly refused?: ReadonlyMap<string, string>;
  /** Namespaces and kinds whose objects are not known. Default: none. */
  readonly unseen?: Unseen;
}

export interface Ports {
  observe(): Promise<Observation>;
  /** Makes each key and stores it where its reference points, never over an existing value. */
  createKeys(wanted: readonly WantedKey[]): Promise<void>;
  readonly snapshots: {
    /** Every file of both slots by name. */
    read(): Promise<ReadonlyMap<string, Uint8Array>>;
    /** Writes one slot whole; the last file (the index) only when all others are there. */
    write(slot: Slot, files: readonly SnapshotFile[]): Promise<void>;
    empty(slot: Slot): Promise<void>;
  };
  /** Default: every namespace is trusted. */
  readonly tenancy?: Tenancy;
  /** Whether the pods are asked what they hold, and `acknowledge` is called with their answers. */
  readonly asksPods: boolean;
  /** Receives the status of every object each time; writes what changed in meaning. */
  writeStatuses(statuses: readonly ObjectStatus[]): Promise<void>;
  /** Unix milliseconds. */
  now(): number;
}

export class Reconciler {
  readonly #ports: Ports;
  #slots: readonly SlotState[] | null = null;
  #compiled: Compiled | null = null;
  /** Serial of the newest snapshot; null: none was published. */
  #serial: number | null = null;
  /** The newest serial that every ready pod has acknowledged. */
  #settled: number | null = null;
  #failure: Extract<Delivery, { kind: "unpublished" }> | null = null;
  /**
   * What was published last. It is remembered, because the last good entry of a broken object must outlive the
   * deletion of everything that was published.
   */
  #published: { readonly serial: number; readonly content: Published } | null = null;
  /** Reports of the ready pods. */
  #pods: readonly PodReport[] = [];
  /** Answers of all pods that answer, ready or not. */
  #answers: readonly ConfigStatus[] = [];
  /** Owners of organization ids as the last round knew them. */
  #owners: Owners = new Map();
  /** The schema version that suits the pods. */
  #version = chooseVersion([]);
  /** The schema version that was published last. */
  #publishedVersion: number | null = null;

  constructor(ports: Ports) {
    this.#ports = ports;
  }

  /** True until every ready pod has acknowledged the newest serial, and all that is in it; false where nobody is asked. */
  get pending(): boolean {
    if (!this.#ports.asksPods || this.#serial === null) return false;
    return this.#settled !== this.#serial || this.#pods.some(({ status }) => this.#lacks(status));
  }

  /** Whether a pod has yet to say of some object whether it takes it: it copies Organizations after it adopted their serial. */
  #lacks(status: ConfigStatus | null): boolean {
    if (status === null || status.serial !== this.#serial) return false;
    const published = this.#published?.content.routing.objects ?? [];
    return status.objects.length + (status.refused?.length ?? 0) < published.length;
  }

  get serial(): number | null {
    return this.#serial;
  }

  /**
   * True when the pods that answer now need another schema version than was published, or know of other owners of
   * organization ids than the last round did: time for a round.
   */
  get needsRound(): boolean {
    if (this.#publishedVersion === null) return false;
    return this.#publishedVersion !== this.#version || !sameOwners(this.#owners, this.#knownOwners());
  }

  /** Runs one whole round. `verify` reads the published files again, so that what was tampered with is put right. */
  async reconcile({ verify = false }: { verify?: boolean } = {}): Promise<void> {
    const slots = await this.#readSlots(verify);
    let input = await this.#observe(slots);
    let compiled = compile(input);
    if (compiled.wanted.length > 0) {
      await this.#ports.createKeys(compiled.wanted);
      input = await this.#observe(slots);
      compiled = compile(input);
    }
    await this.#publish(input, compiled, slots);
    await this.#report();
  }

  /**
   * Takes the pods' answers into the statuses; empties the slot that no pod needs any more. The pods are not asked
   * here: one that hangs must hold up nothing else (rule 6.1).
   */
  async acknowledge(pods: readonly PodReport[]): Promise<void> {
    this.#pods = pods.filter(({ ready }) => ready);
    this.#answers = pods.flatMap(({ status }) => status ?? []);
    this.#version = chooseVersion(this.#answers.map(({ accepts }) => accepts));
    // A restarted operator asks the pods before it compiles, so that nothing looks unserved in between.
    if (this.#compiled === null) return;
    await this.#settle();
    await this.#report();
  }

  async #readSlots(verify: boolean): Promise<readonly SlotState[]> {
    if (this.#slots === null || verify)
      this.#slots = decodeSlots(await this.#ports.snapshots.read(), this.#slots ?? []);
    return this.#slots;
  }

  async #observe(slots: readonly SlotState[]): Promise<CompileInput> {
    const { objects, secrets, forbidden, immutable, refused, unseen } = await this.#ports.observe();
    const read = newest(slots);
    const remembered = this.#published;
    const isRead = remembered === null || (read?.serial ?? 0) > remembered.serial;
    const published = isRead ? (read?.published ?? null) : remembered.content;
    const { tenancy } = this.#ports;
    this.#owners = knownOwners(published, this.#answers);
    return {
      objects: unseen === undefined ? objects : withUnseen(objects, published, unseen),
      secrets,
      published,
      owners: this.#owners,
      ...(forbidden === undefined ? {} : { forbidden }),
      ...(immutable === undefined ? {} : { immutable }),
      ...(refused === undefined ? {} : { refused }),
      ...(tenancy === undefined ? {} : { tenancy }),
    };
  }

  #knownOwners(): Owners {
    return knownOwners(this.#published?.content ?? null, this.#answers);
  }

  /** Publishes `all` that is compiled, or as much of it as fits. */
  async #publish(input: CompileInput, all: Compiled, slots: readonly SlotState[]): Promise<void> {
    let compiled = all;
    let tooLarge: Refusals = new Map();
    for (let round = 1; ; round += 1) {
      const excess = await this.#publishOnce(compiled, slots);
      if (excess === null) return;
      // The bytes that leaving out frees are only an estimate: each round frees more.
      const more = leaveOut(compiled, input.published, { ...excess, bytes: excess.bytes * round }, tooLarge);
      if (more.size === 0) throw new Error("the configuration does not fit the snapshot, with nothing in it");
      tooLarge = new Map([...tooLarge, ...more]);
      compiled = compile({ ...input, tooLarge });
    }
  }

  /** @returns by how much it does not fit; null: it is published. */
  async #publishOnce(compiled: Compiled, slots: readonly SlotState[]): Promise<Excess | null> {
    this.#compiled = compiled;
    const current = newest(slots);
    const { credentials } = compiled;
    const routing = inVersion(compiled.routing, this.#version);
    const last = current?.published ?? null;
    const hasSameValues = last !== null && sameValues(last.credentials, credentials);
    if (hasSameValues && isSameContent(last.routing, routing)) {
      this.#note(last.routing.serial, last);
      return null;
    }
    const serialized = serialize(routing);
    if (current !== undefined && hasSameValues && current.hash === serialized.hash) {
      // What was read back is replaced by what it was compiled to, so that it is held once.
      const { serial } = last.routing;
      this.#hold({ ...current, published: { routing: { ...routing, serial }, credentials } });
      return null;
    }
    const slot = nextSlot(slots, this.#settled, this.#ports.asksPods);
    const serial = nextSerial(slots, Math.max(this.#ports.now(), (this.#serial ?? 0) + 1));
    const encoded = encode(slot, serial, serialized, credentials);
    if (!encoded.ok) return encoded.excess;
    try {
      await this.#ports.snapshots.write(slot, encoded.files);
    } catch (error) {
      // What the slot holds now is not known: both are read again before the next attempt.
      this.#slots = null;
      const message = `the snapshot could not be written: ${error instanceof Error ? error.message : String(error)}`;
      this.#failure = { kind: "unpublished", reason: "PublishFailed", message };
      await this.#report();
      throw error;
    }
    const published = { routing: { ...routing, serial }, credentials };
    this.#hold({ slot, serial, hash: serialized.hash, published, indexText: encoded.indexText });
    return null;
  }

  #hold(written: SlotState & { readonly published: Published }): void {
    this.#note(written.published.routing.serial, written.published);
    this.#slots = (this.#slots ?? []).map((state) => (state.slot === written.slot ? written : state));
  }

  #note(serial: number, published: Published): void {
    this.#failure = null;
    this.#serial = serial;
    this.#published = { serial, content: published };
    this.#publishedVersion = published.routing.schemaVersion;
  }

  async #settle(): Promise<void> {
    const serial = this.#serial;
    const all = this.#pods.length > 0 && this.#pods.every(({ status }) => status?.serial === serial);
    if (serial === null || !all) return;
    this.#settled = serial;
    for (const state of this.#slots ?? []) {
      if (state.serial === null || state.serial === serial) continue;
      await this.#ports.snapshots.empty(state.slot);
      const emptied: SlotState = { slot: state.slot, serial: null, hash: null, published: null };
      this.#slots = (this.#slots ?? []).map((other) => (other.slot === state.slot ? emptied : other));
    }
  }

  async #report(): Promise<void> {
    if (this.#compiled === null) return;
    const holdings = new Holdings(this.#delivery());
    await this.#ports.writeStatuses(this.#compiled.verdicts.map((verdict) => statusOf(verdict, holdings)));
  }

  #delivery(): Delivery {
    if (this.#failure !== null) return this.#failure;
    if (!this.#ports.asksPods) return { kind: "unasked" };
    return { kind: "asked", serial: this.#serial ?? 0, pods: this.#pods };
  }
}

/** Returns the newest complete slot. */
function newest(slots: readonly SlotState[]): SlotState | undefined {
  return slots
    .filter((state) => state.published !== null)
    .sort((one, other) => (other.serial ?? 0) - (one.serial ?? 0))[0];
}

function sameValues(one: Readonly<Record<string, string>>, other: Readonly<Record<string, string>>): boolean {
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length && keys.every((key) => one[key] === other[key]);
}
