/** The data plane's pods: which are ready, where they answer, and the poke that makes the kubelet look at once. */
import { z } from "zod";
import { isStatus, type KubeApi } from "./client.ts";
import { Informer, type RawObject } from "./informer.ts";

/** A change of any annotation makes the kubelet refresh a pod's volumes. */
const ANNOTATION = "gapura.dev/snapshot-serial";

const podSchema = z.object({
  metadata: z.object({ annotations: z.record(z.string(), z.string()).optional() }),
  spec: z.object({
    containers: z.array(
      z.object({
        ports: z.array(z.object({ name: z.string().optional(), containerPort: z.number() })).optional(),
      }),
    ),
  }),
  status: z
    .object({
      phase: z.string().optional(),
      podIP: z.string().optional(),
      conditions: z.array(z.object({ type: z.string(), status: z.string() })).optional(),
    })
    .optional(),
});

export interface Pod {
  readonly uid: string;
  readonly name: string;
  readonly isReady: boolean;
  /** Where `/config/status` is; null: it has no address or no port named `ops` yet. */
  readonly statusUrl: string | null;
  /** The serial it was last poked with. */
  readonly poked: string | null;
}

export interface PodsOptions {
  readonly api: KubeApi;
  readonly namespace: string;
  readonly selector: string;
  readonly changed: () => void;
  readonly failed: (error: unknown) => void;
}

export class Pods {
  readonly #options: PodsOptions;
  readonly #informer: Informer<Pod>;

  constructor(options: PodsOptions) {
    const { api, namespace, selector, changed, failed } = options;
    this.#options = options;
    this.#informer = new Informer({
      api,
      path: `/api/v1/namespaces/${namespace}/pods`,
      query: { labelSelector: selector },
      read: readPod,
      changed,
      failed,
    });
  }

  get synced(): boolean {
    return this.#informer.synced;
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#informer.run(signal);
  }

  values(): Pod[] {
    return this.#informer.values();
  }

  get readyCount(): number {
    return this.#informer.values().filter(({ isReady }) => isReady).length;
  }

  /** Pokes every pod that does not know of this serial, ready or not (rule 6.2). One failure stops no other. */
  async poke(serial: number, permit: () => void): Promise<void> {
    const { api, namespace, failed } = this.#options;
    for (const pod of this.#informer.values()) {
      if (pod.poked === String(serial)) continue;
      try {
        const patched = await api.call({
          method: "PATCH",
          path: `/api/v1/namespaces/${namespace}/pods/${pod.name}`,
          patch: "merge",
          body: { metadata: { uid: pod.uid, annotations: { [ANNOTATION]: String(serial) } } },
          permit,
        });
        this.#informer.accept(patched);
      } catch (error) {
        if (!isStatus(error, 404, 409)) failed(error);
      }
    }
  }
}

const deploymentsSchema = z.object({
  items: z.array(z.object({ metadata: z.object({ name: z.string(), uid: z.string() }) })),
});

/** The Deployment of the data plane, for Events; null: there is none with these labels. @throws as `call` does. */
export async function findDeployment(api: KubeApi, namespace: string, selector: string) {
  const path = `/apis/apps/v1/namespaces/${namespace}/deployments`;
  const answer = await api.call({ method: "GET", path, query: { labelSelector: selector, limit: "1" } });
  const [first] = deploymentsSchema.parse(answer).items;
  return first === undefined
    ? null
    : { apiVersion: "apps/v1", kind: "Deployment", namespace, ...first.metadata };
}

/** Reads a pod; null: it has ended or is being deleted. */
function readPod(object: RawObject): Pod | null {
  const pod = podSchema.safeParse(object).data;
  const phase = pod?.status?.phase;
  if (pod === undefined || phase === "Succeeded" || phase === "Failed") return null;
  if (object.metadata.deletionTimestamp !== undefined) return null;
  const port = pod.spec.containers.flatMap(({ ports }) => ports ?? []).find(({ name }) => name === "ops");
  const address = pod.status?.podIP;
  const host = address?.includes(":") === true ? `[${address}]` : address;
  return {
    uid: object.metadata.uid,
    name: object.metadata.name,
    isReady: (pod.status?.conditions ?? []).some(({ type, status }) => type === "Ready" && status === "True"),
    statusUrl:
      host === undefined || port === undefined ? null : `http://${host}:${port.containerPort}/config/status`,
    poked: pod.metadata.annotations?.[ANNOTATION] ?? null,
  };
}
