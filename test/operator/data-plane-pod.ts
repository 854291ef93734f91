/** A pod of the real data plane: the process of the image, and what a kubelet does for it. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "../../hack/free-port.ts";
import { DataPlane } from "../fakes/data-plane.ts";
import type { KubeClient } from "./kube-client.ts";
import { DATA_PLANE_LABELS, setPodReady } from "./kube-world.ts";
import { Kubelet } from "./kubelet.ts";
import { programEnvironment } from "../fakes/program-environment.ts";

const PROBE_MS = 200;
/** Clients forget the pod before it stops accepting (`preStop` of the chart). */
const PRE_STOP_MS = 500;

export interface DataPlanePodOptions {
  readonly client: KubeClient;
  readonly namespace: string;
  readonly name: string;
  readonly postgresUrl: string;
  readonly redisUrl: string;
  /** Loaded before the data plane. */
  readonly preload?: string;
  /** What the operator and Services select it by. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Wins over what the test sets, but for addresses. */
  readonly environment?: Readonly<Record<string, string>>;
  readonly longestDelayMs?: number;
}

export class DataPlanePod {
  readonly #options: DataPlanePodOptions;
  readonly #path: string;
  readonly #stop = new AbortController();
  #folder = "";
  #plane: DataPlane | null = null;
  #running: Promise<unknown> = Promise.resolve();
  #output = "";
  #environment: Readonly<Record<string, string>> = {};
  #kubelet: Kubelet | null = null;
  #isTerminating = false;
  isReady = false;
  url = "";
  opsUrl = "";

  constructor(options: DataPlanePodOptions) {
    this.#options = options;
    this.#path = `/api/v1/namespaces/${options.namespace}/pods/${options.name}`;
  }

  get kubelet(): Kubelet {
    if (this.#kubelet === null) throw new Error("the pod was not started");
    return this.#kubelet;
  }

  /** Of its process. */
  get environment(): Readonly<Record<string, string>> {
    return this.#environment;
  }

  /** Everything it logged so far. */
  get output(): string {
    return this.#output;
  }

  /** Whether a Service sends requests to it. */
  get isEndpoint(): boolean {
    return this.isReady && !this.#isTerminating;
  }

  /** Creates the pod and starts its process; `untilReady` waits for it. */
  async start(): Promise<void> {
    const { client, namespace, name, postgresUrl, redisUrl, preload, longestDelayMs = 0 } = this.#options;
    this.#folder = await mkdtemp(join(tmpdir(), "gapura-pod-"));
    const [port, opsPort] = [await freePort(), await freePort()];
    this.url = `http://127.0.0.1:${port}`;
    this.opsUrl = `http://127.0.0.1:${opsPort}`;
    const pod = await client.must("POST", `/api/v1/namespaces/${namespace}/pods`, {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, labels: this.#options.labels ?? DATA_PLANE_LABELS },
      spec: {
        // A pod with a node ends in two steps, as in a cluster.
        nodeName: "node-1",
        containers: [{ name: "data-plane", image: "x", ports: [{ name: "ops", containerPort: opsPort }] }],
      },
    });
    this.#kubelet = new Kubelet(client, namespace, this.#path, this.#folder);
    this.#kubelet.longestDelayMs = longestDelayMs;
    this.#environment = {
      ...programEnvironment(),
      DATABASE_URL: postgresUrl,
      REDIS_URL: redisUrl,
      LOG_LEVEL: "info",
      DRAIN_TIMEOUT: "10",
      ...this.#options.environment,
      HOST: "127.0.0.1",
      PORT: String(port),
      OPS_PORT: String(opsPort),
      POD_UID: pod.metadata?.uid ?? "",
      GAPURA_CONFIG_DIR: this.#folder,
      GAPURA_SEAL_KEYS: await this.#sealKeys(),
    };
    const options = preload === undefined ? [] : ["--import", join(import.meta.dirname, preload)];
    const plane = await DataPlane.spawn({
      stores: { postgresUrl, redisUrl },
      snapshot: this.#folder,
      node: options,
      ports: [port, opsPort],
      environment: this.#environment,
    });
    this.#plane = plane;
    // It has an address from now on.
    await setPodReady(client, namespace, name, false);
    for (const stream of [plane.process.stdout, plane.process.stderr])
      stream?.on("data", (chunk: Buffer) => (this.#output += chunk.toString()));
    this.#running = Promise.all([this.#kubelet.run(this.#stop.signal), this.#probe()]);
  }

  async untilReady(): Promise<void> {
    const deadline = Date.now() + 90_000;
    while (!this.isReady) {
      if (this.#plane?.alive === false) throw new Error(`it ended:\n${this.#output}`);
      if (Date.now() > deadline) throw new Error(`it does not get ready:\n${this.#output.slice(-2000)}`);
      await sleep(50);
    }
  }

  /** As `kubectl delete pod`: out of the Service, preStop, SIGTERM, drained, gone. */
  async stop(): Promise<void> {
    this.#isTerminating = true;
    await this.#options.client.call("DELETE", this.#path);
    await sleep(PRE_STOP_MS);
    await this.kill("SIGTERM");
  }

  /** At once. */
  async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    this.#isTerminating = true;
    await this.#plane?.stop(signal);
    this.#stop.abort();
    await this.#running;
    await this.#options.client.call("DELETE", `${this.#path}?gracePeriodSeconds=0`);
    await rm(this.#folder, { recursive: true, force: true });
  }

  async #sealKeys(): Promise<string> {
    const { client, namespace } = this.#options;
    const path = `/api/v1/namespaces/${namespace}/secrets/gapura-seal`;
    let text = "";
    // The container does not start before the Secret is there.
    await client.until("the seal key is there", async () => {
      const { status, body } = await client.call("GET", path);
      const { data } = body as { data?: Record<string, string> };
      text = Buffer.from(data?.["seal-keys"] ?? "", "base64").toString();
      return status === 200 && text !== "";
    });
    return text;
  }

  async #probe(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const ready = (await this.#plane?.readiness())?.ok === true;
      if (ready !== this.isReady && !this.#isTerminating) {
        await setPodReady(this.#options.client, this.#options.namespace, this.#options.name, ready);
        this.isReady = ready;
      }
      await sleep(PROBE_MS, undefined, { signal }).catch(() => {});
    }
  }
}
