/** A cluster without nodes: operators as processes, and data-plane pods whose kubelet and loader run in the test. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pino } from "pino";
import { SnapshotLoader } from "../../dataplane/config/load.ts";
import type { KubeAccess } from "../../hack/kube-apiserver.ts";
import { type KubeClient, type KubeObject } from "./kube-client.ts";

const main = resolve(import.meta.dirname, "..", "..", "operator", "main.ts");

export interface OperatorProcess {
  readonly name: string;
  readonly child: ChildProcess;
  /** Everything it printed so far. */
  readonly output: () => string;
  readonly ended: Promise<number | null>;
}

/** Starts the operator as its image does. `end` it, or the test leaves a process behind. */
export function startOperator(access: KubeAccess, namespace: string, name: string): OperatorProcess {
  const child = spawn(process.execPath, [main], {
    env: {
      PATH: process.env["PATH"],
      KUBECONFIG: access.kubeconfig,
      POD_NAMESPACE: namespace,
      POD_NAME: name,
      WATCH_NAMESPACES: namespace,
      OPS_PORT: "0",
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let text = "";
  child.stdout.on("data", (chunk: Buffer) => (text += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (text += chunk.toString()));
  const ended = new Promise<number | null>((done) => child.once("exit", (code) => done(code)));
  return { name, child, output: () => text, ended };
}

/** Secrets of the projected volume, as the chart lists them. */
const slots = ["a", "b"].flatMap((bank) => [
  ...Array.from({ length: 8 }, (_, number) => `gapura-${bank}-${number}`),
  ...Array.from({ length: 2 }, (_, number) => `gapura-${bank}-credentials-${number}`),
]);

const DATA_PLANE_LABELS: Readonly<Record<string, string>> = {
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
  #kubelet: Promise<void> = Promise.resolve();
  #uid = "";
  /** While true the kubelet looks away. */
  frozen = false;

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
    this.#kubelet = this.#run();
  }

  async setReady(ready: boolean): Promise<void> {
    await this.#client.must("PATCH", `${this.#path}/status`, {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: this.#name },
      status: {
        phase: "Running",
        podIP: "127.0.0.1",
        podIPs: [{ ip: "127.0.0.1" }],
        conditions: [{ type: "Ready", status: ready ? "True" : "False" }],
      },
    });
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#kubelet;
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

  /** Refreshes the volume when an annotation changed; not otherwise within the time of a test. */
  async #run(): Promise<void> {
    let seen: string | undefined = "";
    while (!this.#stop.signal.aborted) {
      await sleep(100, undefined, { signal: this.#stop.signal }).catch(() => {});
      if (this.frozen || this.#stop.signal.aborted) continue;
      const { body } = await this.#client.call("GET", this.#path);
      const { metadata } = body as { metadata?: { annotations?: Record<string, string> } };
      const poked = metadata?.annotations?.["gapura.dev/snapshot-serial"];
      if (poked === seen) continue;
      seen = poked;
      await this.#materialise();
    }
  }

  /** The Secrets one by one and in any order, each step visible by the atomic swap of a symbolic link. */
  async #materialise(): Promise<void> {
    const files = new Map<string, Buffer>();
    const order = slots.toSorted(() => Math.random() - 0.5);
    for (const [position, name] of order.entries()) {
      const { status, body } = await this.#client.call(
        "GET",
        `/api/v1/namespaces/${this.#namespace}/secrets/${name}`,
      );
      const data = status === 200 ? ((body as { data?: Record<string, string> }).data ?? {}) : {};
      for (const [file, value] of Object.entries(data)) files.set(file, Buffer.from(value, "base64"));
      if (position % 7 === 6 || position === order.length - 1) await this.#swap(files);
    }
  }

  async #swap(files: ReadonlyMap<string, Buffer>): Promise<void> {
    const version = await mkdtemp(join(this.#folder, "..v-"));
    for (const [file, bytes] of files) await writeFile(join(version, file), bytes);
    await mkdir(this.#folder, { recursive: true });
    await symlink(version, join(this.#folder, "..data_tmp"));
    await rename(join(this.#folder, "..data_tmp"), join(this.#folder, "..data"));
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
