/**
 * The snapshot as Secrets of fixed names (design.md §7): `NAME-a-0` … `NAME-a-7`, `NAME-a-credentials-0`, `-1`, and
 * the same for slot `b`. Secret 0 holds the index and the first piece, and is written last.
 */
import { type Slot, slotSchema, CREDENTIAL_SHARDS, ROUTING_SHARDS } from "../../dataplane/config/schema.ts";
import { indexFileName, type SnapshotFile } from "../plan/shards.ts";
import type { KubeApi } from "./client.ts";
import { inParallel } from "./in-parallel.ts";
import { readSecret, type Secret, secretPath, secretSchema } from "./secret.ts";

const LABEL = "gapura.dev/snapshot";
const READS_AT_ONCE = 8;

interface SecretFile {
  readonly slot: Slot;
  /** What follows the snapshot's name: `a-0`, `a-credentials-1`. */
  readonly suffix: string;
  /** Data keys that may stand in it. */
  readonly files: readonly string[];
}

/** Secret 0 of each slot last. */
const secretFiles: readonly SecretFile[] = slotSchema.options.flatMap((slot): SecretFile[] => {
  const piece = (suffix: string): SecretFile => ({ slot, suffix, files: [`${suffix}.gz`] });
  return [
    ...Array.from({ length: CREDENTIAL_SHARDS }, (_, number) => piece(`${slot}-credentials-${number}`)),
    ...Array.from({ length: ROUTING_SHARDS - 1 }, (_, number) => piece(`${slot}-${number + 1}`)),
    { slot, suffix: `${slot}-0`, files: [`${slot}-0.gz`, indexFileName(slot)] },
  ];
});

export interface SnapshotSecretsOptions {
  readonly api: KubeApi;
  readonly namespace: string;
  /** SNAPSHOT_NAME. */
  readonly name: string;
  readonly permit: () => void;
}

export class SnapshotSecrets {
  readonly #options: SnapshotSecretsOptions;
  /** Suffixes of Secrets that hold anything, as far as is known. */
  readonly #filled = new Set<string>();
  /** Resource versions as they were last read or written, by name. */
  readonly #known = new Map<string, bigint>();
  /** Resource versions that a watch has shown since then; null: the Secret is gone. */
  readonly #seen = new Map<string, bigint | null>();

  constructor(options: SnapshotSecretsOptions) {
    this.#options = options;
  }

  /** Notes what a watch showed of a Secret `namespace/name`; Secrets other than ours are ignored. */
  note(key: string, version: string | null): void {
    const { namespace, name: snapshot } = this.#options;
    const [place, name = ""] = key.split("/");
    if (place === namespace && secretFiles.some(({ suffix }) => name === `${snapshot}-${suffix}`))
      this.#seen.set(name, version === null ? null : BigInt(version));
  }

  /** Whether somebody else wrote or deleted one of our Secrets. To be asked while nothing is being written. */
  get isTampered(): boolean {
    return [...this.#seen].some(([name, version]) => {
      const known = this.#known.get(name);
      return version === null ? known !== undefined : known === undefined || version > known;
    });
  }

  /**
   * Reads each Secret by its name: the right to list would show every Secret of the namespace, the stores' addresses
   * among them. A Secret that lost its label counts as missing: writing restores it. Data keys that somebody else added
   * are removed: they would be mounted with ours.
   */
  async read(): Promise<ReadonlyMap<string, Uint8Array>> {
    const { api, namespace, name } = this.#options;
    const files = new Map<string, Uint8Array>();
    await inParallel(secretFiles, READS_AT_ONCE, async ({ suffix, files: allowed }) => {
      const secret = await readSecret(api, namespace, `${name}-${suffix}`);
      this.#remember(`${name}-${suffix}`, secret);
      const data = secret?.metadata.labels?.[LABEL] === name ? secret.data : {};
      this.#noteFilled(suffix, data);
      for (const [file, value] of Object.entries(data))
        if (allowed.includes(file)) files.set(file, Buffer.from(value, "base64"));
      await this.#removeForeign(`${name}-${suffix}`, data, allowed);
    });
    return files;
  }

  #remember(name: string, secret: Secret | null): void {
    this.#seen.delete(name);
    if (secret === null) this.#known.delete(name);
    else this.#known.set(name, BigInt(secret.metadata.resourceVersion));
  }

  async #removeForeign(
    name: string,
    data: Readonly<Record<string, string>>,
    own: readonly string[],
  ): Promise<void> {
    const foreign = Object.keys(data).filter((file) => !own.includes(file));
    if (foreign.length === 0) return;
    const { api, namespace, permit } = this.#options;
    const body = { data: Object.fromEntries(foreign.map((file) => [file, null])) };
    const path = secretPath(namespace, name);
    const left = await api.call({ method: "PATCH", path, patch: "merge", body, permit });
    this.#remember(name, secretSchema.parse(left));
  }

  async write(slot: Slot, files: readonly SnapshotFile[]): Promise<void> {
    const byFile = new Map(files.map(({ name, bytes }) => [name, bytes.toString("base64")]));
    for (const secretFile of secretFiles) {
      if (secretFile.slot !== slot) continue;
      const data: Record<string, string> = {};
      for (const file of secretFile.files) {
        const value = byFile.get(file);
        if (value !== undefined) data[file] = value;
      }
      if (Object.keys(data).length > 0 || this.#filled.has(secretFile.suffix))
        await this.#apply(secretFile, data);
    }
  }

  async empty(slot: Slot): Promise<void> {
    // The index first: without it nobody begins to read the rest.
    for (const secretFile of secretFiles.toReversed())
      if (secretFile.slot === slot && this.#filled.has(secretFile.suffix)) await this.#apply(secretFile, {});
  }

  async #apply({ suffix }: SecretFile, data: Readonly<Record<string, string>>): Promise<void> {
    const { api, namespace, name: snapshot, permit } = this.#options;
    const name = `${snapshot}-${suffix}`;
    const path = secretPath(namespace, name);
    const labels = { [LABEL]: snapshot, "app.kubernetes.io/managed-by": "gapura-operator" };
    const body = {
      apiVersion: "v1",
      kind: "Secret",
      type: "Opaque",
      metadata: { name, namespace, labels },
      data,
    };
    const applied = secretSchema.parse(
      await api.call({ method: "PATCH", path, patch: "apply", body, permit }),
    );
    this.#remember(name, applied);
    await this.#removeForeign(name, applied.data, Object.keys(data));
    this.#noteFilled(suffix, data);
  }

  #noteFilled(suffix: string, data: Readonly<Record<string, string>>): void {
    if (Object.keys(data).length > 0) this.#filled.add(suffix);
    else this.#filled.delete(suffix);
  }
}
