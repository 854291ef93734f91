/** A pod of the real data plane: the process of the image, and what a kubelet does for it. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "../../hack/postgres.ts";
import { hasEnded, stopProcess } from "../../hack/processes.ts";
import { watchForSurprises } from "../fakes/surprises.ts";
import type { KubeClient } from "./kube-client.ts";
import { DATA_PLANE_LABELS, setPodReady } from "./kube-world.ts";
import { Kubelet } from "./kubelet.ts";

const root = resolve(import.meta.dirname, "../..");
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
  readonly longestDelayMs?: number;
}

export class DataPlanePod {
  readonly #options: DataPlanePodOptions;
  readonly #path: string;
  readonly #stop = new AbortController();
  #folder = "";
  #child: ChildProcess | null = null;
  #running: Promise<unknown> = Promise.resolve();
  #output = "";
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
      metadata: { name, labels: DATA_PLANE_LABELS },
      spec: {
        // A pod with a node ends in two steps, as in a cluster.
        nodeName: "node-1",
        containers: [{ name: "data-plane", image: "x", ports: [{ name: "ops", containerPort: opsPort }] }],
      },
    });
    this.#kubelet = new Kubelet(client, namespace, this.#path, this.#folder);
    this.#kubelet.longestDelayMs = longestDelayMs;
    const options = preload === undefined ? [] : ["--import", join(import.meta.dirname, preload)];
    this.#child = spawn(process.execPath, [...options, "dataplane/main.ts"], {
      cwd: root,
      stdio: ["ignore", "pipe", "pipe"],
      env: {
        PATH: process.env["PATH"],
        HOST: "127.0.0.1",
        PORT: String(port),
        OPS_PORT: String(opsPort),
        POD_UID: pod.metadata?.uid,
        DATABASE_URL: postgresUrl,
        REDIS_URL: redisUrl,
        GAPURA_CONFIG_DIR: this.#folder,
        GAPURA_SEAL_KEYS: await this.#sealKeys(),
        LOG_LEVEL: "info",
        DRAIN_TIMEOUT: "10",
      },
    });
    watchForSurprises(this.#child, "a pod");
    // It has an address from now on.
    await setPodReady(client, namespace, name, false);
    for (const stream of [this.#child.stdout, this.#child.stderr])
      stream?.on("data", (chunk: Buffer) => (this.#output += chunk.toString()));
    this.#running = Promise.all([this.#kubelet.run(this.#stop.signal), this.#probe()]);
  }

  async untilReady(timeoutMs = 90_000): Promise<void> {
    const deadline = Date.now() + timeoutMs;
    while (!this.isReady) {
      if (this.#child !== null && hasEnded(this.#child)) throw new Error(`it ended:\n${this.#output}`);
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
    if (this.#child !== null) await stopProcess(this.#child, signal, 20_000);
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
      const answer = await fetch(`${this.opsUrl}/readyz`, { signal: AbortSignal.timeout(2000) }).catch(
        () => null,
      );
      await answer?.text();
      const ready = answer?.ok === true;
      if (ready !== this.isReady && !this.#isTerminating) {
        await setPodReady(this.#options.client, this.#options.namespace, this.#options.name, ready);
        this.isReady = ready;
      }
      await sleep(PROBE_MS, undefined, { signal }).catch(() => {});
    }
  }
}
