/** Our four kinds in the API server: observed by informers, one for each kind and namespace. */
import { API_VERSION } from "../api/fields.ts";
import { type Kind, KINDS, kinds } from "../api/kinds.ts";
import type { SecretKeyRef } from "../plan/credentials.ts";
import { type Declared, reference } from "../plan/objects.ts";
import { overDeclared } from "../plan/quotas.ts";
import type { KubeApi } from "./client.ts";
import { KeptBytes } from "./kept-bytes.ts";
import { areListed, Informer, namespaceOf, type Scoped, type RawObject, unseenOf } from "./informer.ts";

export interface CustomObject {
  readonly declared: Declared;
  readonly status: unknown;
  /** What its spec names of Secrets. */
  readonly secretRefs: readonly SecretKeyRef[];
  /** Its spec was not kept, as its namespace has more than its share. */
  readonly isLeftOut: boolean;
}

type Named = Pick<Declared, "kind" | "namespace" | "name">;

const idOf = (named: Named): string => `${named.kind} ${reference(named)}`;

export const customPath = (kind: Kind, namespace: string | null, name?: string): string =>
  [
    `/apis/${API_VERSION}`,
    ...(namespace === null ? [] : [`/namespaces/${namespace}`]),
    `/${kinds[kind].plural}`,
    ...(name === undefined ? [] : [`/${name}`]),
  ].join("");

export interface CustomObjectsOptions {
  readonly api: KubeApi;
  /** Empty: all. */
  readonly namespaces: readonly string[];
  /** Bytes of specs, as JSON, that are kept of a namespace; null: all. */
  readonly mostBytes: (namespace: string) => number | null;
  /** Something of the namespace was added, deleted, or has another generation. */
  readonly specChanged: (namespace: string) => void;
  /** Only its status, or what means nothing to us. */
  readonly statusChanged: (kind: Kind, key: string) => void;
  readonly failed: (error: unknown) => void;
}

export class CustomObjects {
  readonly #informers: readonly (Scoped<CustomObject> & { readonly kind: Kind })[];

  constructor({ api, namespaces, mostBytes, specChanged, statusChanged, failed }: CustomObjectsOptions) {
    const scopes = namespaces.length === 0 ? [null] : namespaces;
    const kept = new KeptBytes(mostBytes);
    this.#informers = KINDS.flatMap((kind) =>
      scopes.map((namespace) => ({
        kind,
        namespace,
        informer: new Informer<CustomObject>({
          api,
          path: customPath(kind, namespace),
          read: (object, before) => readObject(kind, object, before, kept),
          isPassing: ({ isLeftOut }) => isLeftOut,
          changed: (key, before, after) => {
            if (before !== undefined && after === undefined)
              kept.release(before.declared.namespace, idOf(before.declared));
            if (before?.declared === after?.declared) statusChanged(kind, key);
            else specChanged(namespaceOf(key));
          },
          failed,
        }),
      })),
    );
  }

  get synced(): boolean {
    return areListed(this.#informers);
  }

  /** Namespaces that could not be listed wholly. */
  get unseen(): readonly string[] {
    return unseenOf(this.#informers);
  }

  values(): CustomObject[] {
    return this.#informers.flatMap(({ informer }) => informer.values());
  }

  get(kind: Kind, key: string): CustomObject | undefined {
    for (const { kind: own, informer } of this.#informers) {
      const found = own === kind ? informer.get(key) : undefined;
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** Takes an object that a write gave back. */
  accept(kind: Kind, object: unknown): void {
    for (const { kind: own, informer } of this.#informers) if (own === kind) informer.accept(object);
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all(this.#informers.map(({ informer }) => informer.run(signal)));
  }
}

function readObject(
  kind: Kind,
  object: RawObject,
  before: CustomObject | undefined,
  kept: KeptBytes,
): CustomObject {
  const { metadata } = object;
  const status = object["status"];
  // The same generation is the same spec: one copy of it is enough.
  if (before !== undefined && before.declared.generation === metadata.generation && !before.isLeftOut)
    return { ...before, status };
  const created = Date.parse(metadata.creationTimestamp ?? "") / 1000;
  const creationTimestamp = Number.isFinite(created) ? Math.floor(created) : null;
  const spec = object["spec"];
  const named = { kind, namespace: metadata.namespace, name: metadata.name };
  const share = kept.mostOf(named.namespace);
  const isKept =
    share === null || kept.take(named.namespace, idOf(named), Buffer.byteLength(JSON.stringify(spec ?? {})));
  const most = isKept ? null : share;
  const secretRefs: SecretKeyRef[] = [];
  if (most === null) collectSecretRefs(spec, secretRefs);
  return {
    declared: {
      ...named,
      uid: metadata.uid,
      generation: metadata.generation ?? 0,
      creationTimestamp,
      createdAt: creationTimestamp ?? 0,
      spec: most === null ? (spec ?? {}) : {},
      faults: most === null ? [] : [overDeclared(metadata.namespace, most)],
    },
    status,
    secretRefs,
    isLeftOut: most !== null,
  };
}

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
