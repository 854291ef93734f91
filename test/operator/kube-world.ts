/** A cluster without nodes: operators as processes, and data-plane pods whose kubelet and loader run in the test. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pino } from "pino";
import { NODE_FLAGS } from "../../hack/node-flags.ts";
import { SnapshotLoader } from "../../dataplane/config/load.ts";
import type { KubeAccess } from "../../hack/kube-apiserver.ts";
import { watchForSurprises } from "../fakes/surprises.ts";
import { type KubeClient, type KubeObject } from "./kube-client.ts";
import { Kubelet } from "./kubelet.ts";
import { programEnvironment } from "../fakes/program-environment.ts";

const main = resolve(import.meta.dirname, "..", "..", "operator", "main.ts");

export interface OperatorProcess {
  readonly name: string;
  readonly child: ChildProcess;
  /** Everything it printed so far. */
  readonly output: () => string;
  readonly ended: Promise<number | null>;
}

export interface OperatorOptions {
  /** A module of this folder that is loaded before the operator. */
  readonly preload?: string;
  readonly environment?: Readonly<Record<string, string>>;
}

/** Starts the operator as its image does. `end` it, or the test leaves a process behind. */
export function startOperator(
  access: Pick<KubeAccess, "kubeconfig">,
  namespace: string,
  name: string,
  { preload, environment = {} }: OperatorOptions = {},
): OperatorProcess {
  const options = preload === undefined ? [] : ["--import", join(import.meta.dirname, preload)];
  const child = spawn(process.execPath, [...NODE_FLAGS, ...options, main], {
    env: {
      ...programEnvironment(),
      KUBECONFIG: access.kubeconfig,
      POD_NAMESPACE: namespace,
      POD_NAME: name,
      WATCH_NAMESPACES: namespace,
      OPS_PORT: "0",
      ...environment,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  watchForSurprises(child, `operator ${name}`);
  let text = "";
  child.stdout.on("data", (chunk: Buffer) => (text += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (text += chunk.toString()));
  const ended = new Promise<number | null>((done) => child.once("exit", (code) => done(code)));
  return { name, child, output: () => text, ended };
}

export const DATA_PLANE_LABELS: Readonly<Record<string, string>> = {
  "app.kubernetes.io/name": "gapura",
  "app.kubernetes.io/component": "data-plane",
};

/** A pod of the data plane: the real loader behind a projected volume, and `/config/status`. */
export class TestPod {
  readonly #client: KubeClient;
  readonly #path: string;
  readonly #name: string;
  readonly #namespace: string;
  readonly #labels: Readonly<Record<string, string>>;
  readonly #stop = new AbortController();
  #folder = "";
  #server: Server | null = null;
  #loader: SnapshotLoader | null = null;
  #kubelet: Kubelet | null = null;
  #mounting: Promise<void> = Promise.resolve();
  #uid = "";

  /** `labels`: what the operator selects it by. */
  constructor(client: KubeClient, namespace: string, name: string, labels = DATA_PLANE_LABELS) {
    this.#labels = labels;
    this.#client = client;
    this.#namespace = namespace;
    this.#name = name;
    this.#path = `/api/v1/namespaces/${namespace}/pods/${name}`;
  }

  get loader(): SnapshotLoader {
    if (this.#loader === null) throw new Error("the pod was not started");
    return this.#loader;
  }

  get kubelet(): Kubelet {
    if (this.#kubelet === null) throw new Error("the pod was not started");
    return this.#kubelet;
  }

  async start(): Promise<void> {
    this.#folder = await mkdtemp(join(tmpdir(), "gapura-pod-"));
    this.#loader = new SnapshotLoader(this.#folder, pino({ level: "silent" }));
    this.#server = createServer((_, answer) => answer.end(JSON.stringify(this.#status())));
    await new Promise<void>((done) => this.#server?.listen(0, "127.0.0.1", done));
    const { port } = this.#server.address() as AddressInfo;
    const pod = await this.#client.must("POST", `/api/v1/namespaces/${this.#namespace}/pods`, {
      apiVersion: "v1",
      kind: "Pod",
      metadata: {
        name: this.#name,
        labels: this.#labels,
      },
      spec: {
        containers: [{ name: "data-plane", image: "x", ports: [{ name: "ops", containerPort: port }] }],
      },
    });
    this.#uid = pod.metadata?.uid ?? "";
    await this.#loader.start();
    this.#kubelet = new Kubelet(this.#client, this.#namespace, this.#path, this.#folder);
    this.#mounting = this.#kubelet.run(this.#stop.signal);
  }

  async setReady(ready: boolean): Promise<void> {
    await setPodReady(this.#client, this.#namespace, this.#name, ready);
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#mounting;
    await this.#loader?.stop();
    this.#server?.close();
    this.#server?.closeAllConnections();
    await rm(this.#folder, { recursive: true, force: true });
    await this.#client.call("DELETE", `${this.#path}?gracePeriodSeconds=0`);
  }

  #status() {
    const current = this.loader.current;
    return {
      hash: current?.index.hash ?? null,
      serial: current?.index.serial ?? null,
      podUid: this.#uid,
      accepts: [1],
      rejected: this.loader.rejected,
      objects: (current?.routing.objects ?? []).map((source) => ({ ...source, notes: [] })),
    };
  }
}

interface StatusOfObject {
  readonly observedGeneration?: number;
  readonly conditions?: readonly {
    readonly type: string;
    readonly status: string;
    readonly reason: string;
    readonly message: string;
    readonly observedGeneration?: number;
  }[];
}

/** `Programmed` of an object as `True Programmed 1/1 pods`; with the generation that it speaks of. */
export function conditionText(object: KubeObject, type: string): string {
  const { conditions = [] } = (object.status ?? {}) as StatusOfObject;
  const found = conditions.find((condition) => condition.type === type);
  return found === undefined ? "none" : `${found.status} ${found.reason}: ${found.message}`;
}

export const observedGeneration = (object: KubeObject): number | undefined =>
  (object.status as StatusOfObject | undefined)?.observedGeneration;

/** Writes a pod's status as its kubelet does. */
export async function setPodReady(
  client: KubeClient,
  namespace: string,
  name: string,
  ready: boolean,
): Promise<void> {
  await client.must("PATCH", `/api/v1/namespaces/${namespace}/pods/${name}/status`, {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name },
    status: {
      phase: "Running",
      podIP: "127.0.0.1",
      podIPs: [{ ip: "127.0.0.1" }],
      conditions: [{ type: "Ready", status: ready ? "True" : "False" }],
    },
  });
}
