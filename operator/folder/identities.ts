/**
 * What a cluster keeps for us and a folder does not: for each kind, namespace and name a uid made when it first
 * appeared, and a generation that grows with each change of its spec. Also from which file it came, so that a
 * file that cannot be read keeps its objects, across restarts too.
 */
import { createHash, randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { z } from "zod";
import { isKind, type Kind } from "../api/kinds.ts";
import { writeAtomically } from "./files.ts";
import type { Manifest } from "./parse.ts";

const identitySchema = z.object({
  uid: z.string(),
  generation: z.number().int().positive(),
  /** SHA-256 of the spec, and the paths of faults outside it. */
  digest: z.string(),
  /** Path inside the folder of manifests. */
  file: z.string(),
  /** Unix seconds. */
  createdAt: z.number().int(),
});
export type Identity = z.infer<typeof identitySchema>;
const stateSchema = z.object({ version: z.literal(1), objects: z.record(z.string(), identitySchema) });

export interface Named {
  readonly kind: Kind;
  readonly namespace: string;
  readonly name: string;
}
const keyOf = ({ kind, namespace, name }: Named) => `${kind} ${namespace}/${name}`;

export class Identities {
  /** null: nothing is kept. */
  readonly #path: string | null;
  readonly #objects: Map<string, Identity>;
  readonly #digests = new WeakMap<object, string>();
  readonly #newUid: () => string;
  #changed = false;

  private constructor(path: string | null, objects: Map<string, Identity>, newUid: () => string) {
    this.#newUid = newUid;
    this.#path = path;
    this.#objects = objects;
  }

  /** Returns identities for one look at a folder, which are not kept. */
  static temporary(): Identities {
    return new Identities(null, new Map(), randomUUID);
  }

  /** Reads the kept identities. @throws when they are there but cannot be read: starting anew would change every uid. */
  static async open(dataFolder: string, newUid: () => string = randomUUID): Promise<Identities> {
    const path = join(dataFolder, "operator.json");
    const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return null;
      throw error;
    });
    if (text === null) return new Identities(path, new Map(), newUid);
    const state = stateSchema.parse(parseState(path, text));
    return new Identities(path, new Map(Object.entries(state.objects)), newUid);
  }

  /** Returns the identity of a manifest that was read, brought up to date. */
  of(manifest: Manifest, file: string, nowSeconds: number): Identity {
    const key = keyOf(manifest);
    // A fault outside the spec changes the digest too: the faulty text is not what was published.
    const digest = `${this.#digest(manifest.spec)}${manifest.faults.map(({ path }) => ` ${path}`).join("")}`;
    const known = this.#objects.get(key);
    if (known?.digest === digest && known.file === file) return known;
    const identity: Identity =
      known === undefined
        ? { uid: this.#newUid(), generation: 1, digest, file, createdAt: nowSeconds }
        : { ...known, digest, file, generation: known.generation + (known.digest === digest ? 0 : 1) };
    this.#objects.set(key, identity);
    this.#changed = true;
    return identity;
  }

  /** Returns everything that was last seen in one of the files, or in a file below one of the folders. */
  lastSeenIn(places: ReadonlySet<string>): { readonly named: Named; readonly identity: Identity }[] {
    if (places.size === 0) return [];
    return [...this.#objects].flatMap(([key, identity]) => {
      if (!isWithin(identity.file, places)) return [];
      const [, kind = "", namespace = "", name = ""] = /^(\S+) ([^/]+)\/(.+)$/.exec(key) ?? [];
      return isKind(kind) ? [{ named: { kind, namespace, name }, identity }] : [];
    });
  }

  /** Forgets objects that are not declared any more: one that is declared again is a new object. */
  keepOnly(named: readonly Named[]): void {
    const kept = new Set(named.map(keyOf));
    for (const key of this.#objects.keys())
      if (!kept.has(key)) {
        this.#objects.delete(key);
        this.#changed = true;
      }
  }

  async save(): Promise<void> {
    if (!this.#changed || this.#path === null) return;
    const state = { version: 1, objects: Object.fromEntries(this.#objects) };
    await writeAtomically(this.#path, `${JSON.stringify(state)}\n`, 0o600);
    this.#changed = false;
  }

  #digest(spec: unknown): string {
    if (typeof spec !== "object" || spec === null) return hash(JSON.stringify(spec) ?? "");
    let digest = this.#digests.get(spec);
    if (digest === undefined) {
      digest = hash(JSON.stringify(sorted(spec)));
      this.#digests.set(spec, digest);
    }
    return digest;
  }
}

function isWithin(file: string, places: ReadonlySet<string>): boolean {
  let at = file;
  while (!places.has(at)) {
    const above = dirname(at);
    if (above === at || above === ".") return false;
    at = above;
  }
  return true;
}

function parseState(path: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new Error(`${path} is damaged; restore it, or delete it to begin anew with new uids`, { cause });
  }
}

const hash = (text: string) => createHash("sha256").update(text).digest("hex");

/** Sorts the keys of every object in a value, as their order means nothing. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  return Object.entries(value)
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([key, inner]) => [key, sorted(inner)]);
}
