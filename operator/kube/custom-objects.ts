/** Our four kinds in the API server: observed by informers, one for each kind and namespace. */
import { API_VERSION, GROUP } from "../api/fields.ts";
import { type Kind, KINDS, kinds } from "../api/kinds.ts";
import type { SecretKeyRef } from "../plan/credentials.ts";
import { type Declared, reference } from "../plan/objects.ts";
import { overDeclared } from "../plan/quotas.ts";
import { isStatus, type KubeApi } from "./client.ts";
import { areListed, Informer, namespaceOf, type Scoped, type RawObject, unseenOf } from "./informer.ts";
import { OldestKept } from "./oldest-kept.ts";

export interface CustomObject {
  readonly declared: Declared;
  readonly status: unknown;
  /** References of its spec to Secrets. */
  readonly secretRefs: readonly SecretKeyRef[];
  /** Whether its spec is not kept, because its namespace has more than its share. */
  readonly isLeftOut: boolean;
}

export const customPath = (kind: Kind, namespace: string | null, name?: string): string =>
  [
    `/apis/${API_VERSION}`,
    ...(namespace === null ? [] : [`/namespaces/${namespace}`]),
    `/${kinds[kind].plural}`,
    ...(name === undefined ? [] : [`/${name}`]),
  ].join("");

/** The name of the kind's definition. */
export const definitionOf = (kind: Kind): string => `${kinds[kind].plural}.${GROUP}`;

export interface CustomObjectsOptions {
  readonly api: KubeApi;
  /** Empty: all. */
  readonly namespaces: readonly string[];
  /** Bytes of specs, as JSON, that are kept of a namespace; null: all. */
  readonly mostBytes: (namespace: string) => number | null;
  /** Called when an object of the namespace is added or deleted, or its generation or what is kept of its spec changes. */
  readonly specChanged: (namespace: string) => void;
  /** Called when only its status changes, or nothing that we read. */
  readonly statusChanged: (kind: Kind, key: string) => void;
  readonly failed: (error: unknown) => void;
}

export class CustomObjects {
  readonly #kept: OldestKept;
  readonly #informers: readonly (Scoped<CustomObject> & { readonly kind: Kind })[];

  constructor({ api, namespaces, mostBytes, specChanged, statusChanged, failed }: CustomObjectsOptions) {
    const scopes = namespaces.length === 0 ? [null] : namespaces;
    this.#kept = new OldestKept(mostBytes);
    this.#informers = KINDS.flatMap((kind) =>
      scopes.map((namespace) => ({
        kind,
        namespace,
        informer: new Informer<CustomObject>({
          api,
          path: customPath(kind, namespace),
          read: (object, before) => this.#read(kind, object, before),
          isPassing: ({ isLeftOut }) => isLeftOut,
          changed: (key, before, after) => {
            if (before !== undefined && after === undefined) this.#kept.release(before.declared);
            if (before?.declared === after?.declared) statusChanged(kind, key);
            else specChanged(namespaceOf(key));
          },
          failed: (error) => failed(isStatus(error, 404) ? new Error(undefinedKind(kind)) : error),
        }),
      })),
    );
  }

  /** Whether all that can be listed was. A kind without a definition holds up no other, as long as any has one. */
  get synced(): boolean {
    return this.#undefinedKinds.size < KINDS.length && areListed(this.#defined);
  }

  /** Namespaces that could not be listed wholly. */
  get unseen(): readonly string[] {
    return unseenOf(this.#defined);
  }

  /** Kinds whose objects are not known: they have no definition, or not all was listed since they do. */
  get unseenKinds(): ReadonlySet<Kind> {
    const unlisted = this.#informers.filter(
      ({ namespace, informer }) => namespace === null && !informer.synced,
    );
    return new Set([...this.#undefinedKinds, ...unlisted.map(({ kind }) => kind)]);
  }

  get #undefinedKinds(): ReadonlySet<Kind> {
    const missing = this.#informers.filter(({ informer }) => informer.isUndefined);
    return new Set(missing.map(({ kind }) => kind));
  }

  /** Informers of the kinds that the API server knows. */
  get #defined() {
    const missing = this.#undefinedKinds;
    return this.#informers.filter(({ kind }) => !missing.has(kind));
  }

  values(): CustomObject[] {
    return this.#informers.flatMap(({ informer }) => informer.values());
  }

  get(kind: Kind, key: string): CustomObject | undefined {
    return this.#informerOf(kind, key)?.get(key);
  }

  /** Returns the informer that has the object. */
  #informerOf(kind: Kind, key: string): Informer<CustomObject> | undefined {
    for (const { kind: own, informer } of this.#informers)
      if (own === kind && informer.get(key) !== undefined) return informer;
    return undefined;
  }

  /** Takes an object that a write returned. */
  accept(kind: Kind, object: unknown): void {
    for (const { kind: own, informer } of this.#informers) if (own === kind) informer.accept(object);
  }

  /** Returns what is kept of the object. When room is short, the specs of younger objects of its namespace are dropped. */
  #read(kind: Kind, object: RawObject, before: CustomObject | undefined): CustomObject {
    // The same generation is the same spec: one copy of it is enough.
    const same = before?.declared.generation === object.metadata.generation ? before : undefined;
    if (same?.isLeftOut === false) return { ...same, status: object["status"] };
    const read = readObject(kind, object);
    const { declared } = read;
    const most = this.#kept.mostOf(declared.namespace);
    if (most === null) return read;
    const out = this.#kept.offer(declared, Buffer.byteLength(JSON.stringify(declared.spec)));
    if (out.includes(declared))
      return same === undefined ? leftOut(read, most) : { ...same, status: read.status };
    for (const younger of out) {
      const informer = this.#informerOf(younger.kind, reference(younger));
      const kept = informer?.get(reference(younger));
      if (kept !== undefined) informer?.replace(reference(younger), leftOut(kept, most));
    }
    return read;
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all(this.#informers.map(({ informer }) => informer.run(signal)));
  }
}

/** Names the definition that is missing: the API server itself only says that it could not find what was asked for. */
const undefinedKind = (kind: Kind): string =>
  `the definition ${definitionOf(kind)} is missing, or not served yet: install the chart gapura-crds`;

function readObject(kind: Kind, { metadata, ...object }: RawObject): CustomObject {
  const created = Date.parse(metadata.creationTimestamp ?? "") / 1000;
  const creationTimestamp = Number.isFinite(created) ? Math.floor(created) : null;
  const spec = object["spec"];
  const secretRefs: SecretKeyRef[] = [];
  collectSecretRefs(spec, secretRefs);
  return {
    declared: {
      kind,
      namespace: metadata.namespace,
      name: metadata.name,
      uid: metadata.uid,
      generation: metadata.generation ?? 0,
      creationTimestamp,
      createdAt: creationTimestamp ?? 0,
      spec: spec ?? {},
      faults: [],
    },
    status: object["status"],
    secretRefs,
    isLeftOut: false,
  };
}

/** Returns the object without its spec. @param most bytes that are kept of its namespace */
const leftOut = ({ declared, status }: CustomObject, most: number): CustomObject => ({
  declared: { ...declared, spec: {}, faults: [overDeclared(declared.namespace, most)] },
  status,
  secretRefs: [],
  isLeftOut: true,
});

/** Every `secretKeyRef` and `secretRef`: the forms in which a spec names a Secret. */
function collectSecretRefs(value: unknown, refs: SecretKeyRef[]): void {
  if (typeof value !== "object" || value === null) return;
  for (const [field, inner] of Object.entries(value)) {
    if (
      (field === "secretKeyRef" || field === "secretRef") &&
      typeof inner === "object" &&
      inner !== null &&
      "name" in inner &&
      "key" in inner
    ) {
      const { name, key } = inner;
      if (typeof name === "string" && typeof key === "string") refs.push({ name, key });
    } else collectSecretRefs(inner, refs);
  }
}
