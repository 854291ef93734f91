/**
 * A cluster's controllers, as far as a release of the chart needs them: they run Jobs, and keep the pods of Deployments what
 * the templates say, one by one and a new one ready before an old one goes. Pods are processes of this machine.
 */
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { NODE_FLAGS } from "../../hack/node-flags.ts";
import type { KubeAccess } from "../../hack/kube-apiserver.ts";
import { stopProcess } from "../../hack/processes.ts";
import { accountToken, startOperatorOfChart, type Started } from "../charts/service-account.ts";
import type { KubeObject as ChartObject } from "../charts/helm.ts";
import { DataPlanePod } from "./data-plane-pod.ts";
import type { KubeClient } from "./kube-client.ts";
import { programEnvironment } from "../fakes/program-environment.ts";

const root = resolve(import.meta.dirname, "../..");
const TICK_MS = 200;

// Loose: what is compared and handed on is the whole.
const containerSchema = z.looseObject({
  args: z.array(z.string()).optional(),
  env: z
    .array(
      z.looseObject({
        name: z.string(),
        value: z.string().optional(),
        valueFrom: z
          .looseObject({ secretKeyRef: z.looseObject({ name: z.string(), key: z.string() }).optional() })
          .optional(),
      }),
    )
    .default([]),
});
const templateSchema = z.looseObject({
  metadata: z.looseObject({ labels: z.record(z.string(), z.string()) }),
  spec: z.looseObject({ serviceAccountName: z.string().optional(), containers: z.array(containerSchema) }),
});
const deploymentSchema = z.looseObject({
  metadata: z.looseObject({ name: z.string(), generation: z.number() }),
  spec: z.looseObject({ replicas: z.number(), template: templateSchema }),
});
type Deployment = z.infer<typeof deploymentSchema>;
const jobSchema = z.object({
  metadata: z.object({ name: z.string(), uid: z.string() }),
  spec: z.object({ template: templateSchema }),
});

/** What runs for a Deployment. */
interface Replica {
  /** The template that it was made of. */
  readonly template: string;
  readonly isReady: () => boolean;
  readonly stop: () => Promise<void>;
}

export class Controllers {
  readonly #access: KubeAccess;
  readonly #client: KubeClient;
  readonly #namespace: string;
  readonly #stop = new AbortController();
  readonly #replicas = new Map<string, Replica[]>();
  readonly #done = new Set<string>();
  readonly #statuses = new Map<string, string>();
  #folder = "";
  #made = 0;
  #running: Promise<void> = Promise.resolve();
  /** Everything that ended data planes logged. */
  #pastOutput = "";
  /** Those that were not stopped, the oldest first. */
  readonly pods: DataPlanePod[] = [];
  readonly operators: Started[] = [];

  constructor(access: KubeAccess, client: KubeClient, namespace: string) {
    this.#access = access;
    this.#client = client;
    this.#namespace = namespace;
  }

  /** Log of all data planes so far. */
  get output(): string {
    return this.#pastOutput + this.pods.map((pod) => pod.output).join("");
  }

  async start(): Promise<void> {
    this.#folder = await mkdtemp(join(tmpdir(), "gapura-controllers-"));
    this.#running = this.#run();
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#running;
    await Promise.all(this.pods.map((pod) => pod.kill()));
    await Promise.all(this.operators.map(({ child }) => stopProcess(child, "SIGKILL", 5_000)));
    await rm(this.#folder, { recursive: true, force: true });
  }

  /** The environment of a container, its Secrets looked up as the kubelet does. */
  async #environment(container: z.infer<typeof containerSchema>): Promise<Record<string, string>> {
    const environment: Record<string, string> = {};
    for (const { name, value, valueFrom } of container.env) {
      const { name: secret, key } = valueFrom?.secretKeyRef ?? {};
      if (value !== undefined) environment[name] = value;
      if (secret === undefined || key === undefined) continue;
      const { status, body } = await this.#client.call(
        "GET",
        `/api/v1/namespaces/${this.#namespace}/secrets/${secret}`,
      );
      const data = status === 200 ? ((body as { data?: Record<string, string> }).data ?? {}) : {};
      environment[name] = Buffer.from(data[key] ?? "", "base64").toString();
    }
    return environment;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      for (const job of await this.#list("/apis/batch/v1", "jobs", jobSchema)) await this.#runJob(job);
      // Side by side: a pod of one waits for what another makes.
      const deployments = await this.#list("/apis/apps/v1", "deployments", deploymentSchema);
      await Promise.all(deployments.map((deployment) => this.#keep(deployment)));
      await sleep(TICK_MS, undefined, { signal }).catch(() => {});
    }
  }

  async #list<T>(api: string, plural: string, schema: z.ZodType<T>): Promise<T[]> {
    const list = await this.#client.must("GET", `${api}/namespaces/${this.#namespace}/${plural}`);
    return z.object({ items: z.array(schema) }).parse(list).items;
  }

  async #runJob({ metadata: { name, uid }, spec }: z.infer<typeof jobSchema>): Promise<void> {
    const [container] = spec.template.spec.containers;
    if (this.#done.has(uid) || container?.args === undefined) return;
    this.#done.add(uid);
    const startTime = moment();
    const child = spawn(process.execPath, [...NODE_FLAGS, ...container.args], {
      cwd: root,
      env: { ...programEnvironment(), ...(await this.#environment(container)) },
      stdio: "ignore",
    });
    const code = await new Promise<number | null>((done) => child.once("exit", done));
    // Helm waits for this in vain where the job failed.
    if (code !== 0) return;
    const condition = (type: string) => ({ type, status: "True", lastTransitionTime: moment() });
    await this.#client.must("PATCH", `/apis/batch/v1/namespaces/${this.#namespace}/jobs/${name}/status`, {
      apiVersion: "batch/v1",
      kind: "Job",
      metadata: { name },
      status: {
        startTime,
        completionTime: moment(),
        succeeded: 1,
        uncountedTerminatedPods: {},
        conditions: [condition("SuccessCriteriaMet"), condition("Complete")],
      },
    });
  }

  /** One step towards what is declared, and the status. */
  async #keep(deployment: Deployment): Promise<void> {
    const { name } = deployment.metadata;
    const { replicas: wanted, template } = deployment.spec;
    const own = this.#replicas.get(name) ?? [];
    this.#replicas.set(name, own);
    const text = JSON.stringify(template);
    const fresh = own.filter((replica) => replica.template === text);
    const old = own.filter((replica) => replica.template !== text);
    const ready = fresh.filter((replica) => replica.isReady()).length;
    if (fresh.length < wanted && own.length < wanted + (old.length > 0 ? 1 : 0)) {
      own.push(await this.#startReplica(deployment, text));
    } else {
      const surplus = fresh.length > wanted ? fresh.at(-1) : undefined;
      const leaving = ready + old.length > wanted ? (old[0] ?? surplus) : surplus;
      if (leaving !== undefined) {
        await leaving.stop();
        own.splice(own.indexOf(leaving), 1);
      }
    }
    await this.#report(deployment, own, text);
  }

  async #report({ metadata, spec }: Deployment, own: readonly Replica[], text: string): Promise<void> {
    const ready = own.filter((replica) => replica.isReady()).length;
    const { name, generation: observedGeneration } = metadata;
    const status = {
      observedGeneration,
      replicas: own.length,
      updatedReplicas: own.filter(({ template }) => template === text).length,
      readyReplicas: ready,
      availableReplicas: ready,
      unavailableReplicas: Math.max(0, spec.replicas - ready),
    };
    if (this.#statuses.get(name) === JSON.stringify(status)) return;
    await this.#client.must(
      "PATCH",
      `/apis/apps/v1/namespaces/${this.#namespace}/deployments/${name}/status`,
      { apiVersion: "apps/v1", kind: "Deployment", metadata: { name }, status },
    );
    this.#statuses.set(name, JSON.stringify(status));
  }

  async #startReplica(deployment: Deployment, template: string): Promise<Replica> {
    const { metadata, spec } = deployment.spec.template;
    const number = (this.#made += 1);
    if (metadata.labels["app.kubernetes.io/component"] === "operator") {
      const token = await accountToken(this.#client, this.#namespace, spec.serviceAccountName ?? "");
      const object = { ...deployment, kind: "Deployment", apiVersion: "apps/v1" } as unknown as ChartObject;
      const named = { ...object, metadata: { ...object.metadata, namespace: this.#namespace } };
      const rendered = { objects: [named], get: () => named, all: () => [named] };
      const folder = await mkdtemp(join(this.#folder, "operator-"));
      const operator = await startOperatorOfChart(this.#access, rendered, token, folder);
      this.operators.push(operator);
      return {
        template,
        isReady: () => operator.child.exitCode === null,
        stop: () => stopProcess(operator.child, "SIGTERM", 20_000),
      };
    }
    const {
      DATABASE_URL = "",
      REDIS_URL = "",
      ...environment
    } = await this.#environment(spec.containers[0] ?? { env: [] });
    const pod = new DataPlanePod({
      client: this.#client,
      namespace: this.#namespace,
      name: `data-plane-${number}`,
      postgresUrl: DATABASE_URL,
      redisUrl: REDIS_URL,
      labels: metadata.labels,
      environment,
    });
    this.pods.push(pod);
    await pod.start();
    return {
      template,
      isReady: () => pod.isReady,
      stop: async () => {
        await pod.stop();
        this.pods.splice(this.pods.indexOf(pod), 1);
        this.#pastOutput += pod.output;
      },
    };
  }
}

const moment = () => new Date().toISOString().replace(/\.\d+Z$/, "Z");
