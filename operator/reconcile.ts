/**
 * observe → plan → publish → status, over ports that a folder and a cluster implement. Nothing here knows which.
 * Calls of one Reconciler never overlap; whoever drives it puts them in a row.
 */
import { type Bank } from "../dataplane/config/schema.ts";
import { compile, type Compiled } from "./plan/compile.ts";
import { type Delivery, Holdings, type ObjectStatus, type PodReport, statusOf } from "./plan/conditions.ts";
import type { Declared, Secrets, WantedKey } from "./plan/objects.ts";
import type { Published } from "./plan/prior.ts";
import { chooseVersion, inVersion } from "./plan/schema-version.ts";
import {
  type BankState,
  decodeBanks,
  encode,
  isSameContent,
  nextBank,
  nextSerial,
  serialize,
  type SnapshotFile,
} from "./plan/shards.ts";

export interface Observation {
  readonly objects: readonly Declared[];
  readonly secrets: Secrets;
}

export interface Ports {
  observe(): Promise<Observation>;
  /** Makes each key and stores it where its reference points, never over an existing value. */
  createKeys(wanted: readonly WantedKey[]): Promise<void>;
  readonly snapshots: {
    /** Every file of both banks by name. */
    read(): Promise<ReadonlyMap<string, Uint8Array>>;
    /** Writes one bank whole; the last file (the index) only when all others are there. */
    write(bank: Bank, files: readonly SnapshotFile[]): Promise<void>;
    empty(bank: Bank): Promise<void>;
  };
  /** Whether somebody asks the pods what they hold, and tells `acknowledge`. */
  readonly asksPods: boolean;
  /** Receives the status of every object each time; writes what changed in meaning. */
  writeStatuses(statuses: readonly ObjectStatus[]): Promise<void>;
  /** Unix milliseconds. */
  now(): number;
}

export class Reconciler {
  readonly #ports: Ports;
  #banks: readonly BankState[] | null = null;
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
  /** Those that are ready. */
  #pods: readonly PodReport[] = [];
  /** The schema version that suits the pods. */
  #version = chooseVersion([]);
  /** The schema version that was published last. */
  #publishedVersion: number | null = null;

  constructor(ports: Ports) {
    this.#ports = ports;
  }

  /** True until every ready pod has acknowledged the newest serial; false where nobody is asked. */
  get pending(): boolean {
    return this.#ports.asksPods && this.#serial !== null && this.#settled !== this.#serial;
  }

  get serial(): number | null {
    return this.#serial;
  }

  /** True when the pods that answer now need another schema version than was published: time for a round. */
  get needsOtherVersion(): boolean {
    return this.#publishedVersion !== null && this.#publishedVersion !== this.#version;
  }

  /** One whole round. `verify` reads the published files again, so that what was tampered with is put right. */
  async reconcile({ verify = false }: { verify?: boolean } = {}): Promise<void> {
    const banks = await this.#readBanks(verify);
    let compiled = await this.#plan(banks);
    if (compiled.wanted.length > 0) {
      await this.#ports.createKeys(compiled.wanted);
      compiled = await this.#plan(banks);
    }
    this.#compiled = compiled;
    await this.#publish(compiled, banks);
    await this.#report();
  }

  /**
   * Takes what the pods answered into the statuses; empties the bank that nobody needs any more. Asking is not done
   * here: a pod that hangs must hold up nothing else (rule 6.1).
   */
  async acknowledge(pods: readonly PodReport[]): Promise<void> {
    this.#pods = pods.filter(({ ready }) => ready);
    this.#version = chooseVersion(pods.flatMap(({ status }) => (status === null ? [] : [status.accepts])));
    // A restarted operator asks before it compiles, so that nothing looks unserved in between.
    if (this.#compiled === null) return;
    await this.#settle();
    await this.#report();
  }

  async #readBanks(verify: boolean): Promise<readonly BankState[]> {
    if (this.#banks === null || verify)
      this.#banks = decodeBanks(await this.#ports.snapshots.read(), this.#banks ?? []);
    return this.#banks;
  }

  async #plan(banks: readonly BankState[]): Promise<Compiled> {
    const { objects, secrets } = await this.#ports.observe();
    const read = newest(banks);
    const remembered = this.#published;
    const isRead = remembered === null || (read?.serial ?? 0) > remembered.serial;
    return compile({
      objects,
      secrets,
      published: isRead ? (read?.published ?? null) : remembered.content,
    });
  }

  async #publish(compiled: Compiled, banks: readonly BankState[]): Promise<void> {
    const current = newest(banks);
    const { credentials } = compiled;
    const routing = inVersion(compiled.routing, this.#version);
    const last = current?.published ?? null;
    const hasSameValues = last !== null && sameValues(last.credentials, credentials);
    if (hasSameValues && isSameContent(last.routing, routing)) {
      this.#note(last.routing.serial, last);
      return;
    }
    const serialized = serialize(routing);
    if (current !== undefined && hasSameValues && current.hash === serialized.hash) {
      // What was read back is held once, as what it was compiled to.
      const { serial } = last.routing;
      this.#hold({ ...current, published: { routing: { ...routing, serial }, credentials } });
      return;
    }
    const bank = nextBank(banks, this.#settled, this.#ports.asksPods);
    const serial = nextSerial(banks, Math.max(this.#ports.now(), (this.#serial ?? 0) + 1));
    const encoded = encode(bank, serial, serialized, credentials);
    if (!encoded.ok) {
      this.#failure = { kind: "unpublished", reason: "TooLarge", message: encoded.message };
      return;
    }
    try {
      await this.#ports.snapshots.write(bank, encoded.files);
    } catch (error) {
      // What stands there now is not known: it is read again before the next attempt.
      this.#banks = null;
      const message = `the snapshot could not be written: ${error instanceof Error ? error.message : String(error)}`;
      this.#failure = { kind: "unpublished", reason: "PublishFailed", message };
      await this.#report();
      throw error;
    }
    const published = { routing: { ...routing, serial }, credentials };
    this.#hold({ bank, serial, hash: serialized.hash, published, indexText: encoded.indexText });
  }

  #hold(written: BankState & { readonly published: Published }): void {
    this.#note(written.published.routing.serial, written.published);
    this.#banks = (this.#banks ?? []).map((state) => (state.bank === written.bank ? written : state));
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
    for (const state of this.#banks ?? []) {
      if (state.serial === null || state.serial === serial) continue;
      await this.#ports.snapshots.empty(state.bank);
      const emptied: BankState = { bank: state.bank, serial: null, hash: null, published: null };
      this.#banks = (this.#banks ?? []).map((other) => (other.bank === state.bank ? emptied : other));
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

/** The newest complete bank. */
function newest(banks: readonly BankState[]): BankState | undefined {
  return banks
    .filter((state) => state.published !== null)
    .sort((one, other) => (other.serial ?? 0) - (one.serial ?? 0))[0];
}

function sameValues(one: Readonly<Record<string, string>>, other: Readonly<Record<string, string>>): boolean {
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length && keys.every((key) => one[key] === other[key]);
}
