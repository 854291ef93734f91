/**
 * The data plane as the chart's Deployment runs it, in a process instead of a container: arguments, environment,
 * probes, pre-stop pause and grace are read out of the rendered pod. What the kubelet does with them is done here.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { NODE_FLAGS } from "../../hack/node-flags.ts";
import { freePort } from "../../hack/free-port.ts";
import { hasEnded, stopProcess } from "../../hack/processes.ts";
import { podOf, type Rendered } from "../charts/helm.ts";
import {
  slotFiles,
  sampleKeys,
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleUpstream,
  sha256,
  writeFiles,
} from "../fakes/sample-snapshot.ts";
import { watchForSurprises } from "../fakes/surprises.ts";
import { programEnvironment } from "../fakes/program-environment.ts";

const root = resolve(import.meta.dirname, "../..");

const probeSchema = z.object({ httpGet: z.object({ path: z.string(), port: z.string() }) });
const containerSchema = z.object({
  args: z.array(z.string()),
  env: z.array(
    z.object({
      name: z.string(),
      value: z.string().optional(),
      valueFrom: z
        .object({
          fieldRef: z.object({ fieldPath: z.literal("metadata.uid") }).optional(),
          secretKeyRef: z.object({ name: z.string(), key: z.string() }).optional(),
        })
        .optional(),
    }),
  ),
  ports: z.array(z.object({ name: z.string(), containerPort: z.number() })),
  startupProbe: probeSchema.extend({ periodSeconds: z.number(), failureThreshold: z.number() }),
  readinessProbe: probeSchema,
  livenessProbe: probeSchema,
  lifecycle: z.object({ preStop: z.object({ sleep: z.object({ seconds: z.number() }) }) }),
});
const podSchema = z.object({
  terminationGracePeriodSeconds: z.number(),
  containers: z.tuple([containerSchema]),
});
type Container = z.infer<typeof containerSchema>;
type ProbeName = "startupProbe" | "readinessProbe" | "livenessProbe";

export interface ChartPodOptions {
  readonly rendered: Rendered;
  /** Values of the Secrets that the pod names: name → key → value. */
  readonly secrets: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** What is mounted as the snapshot. */
  readonly snapshot: string;
  /** What is mounted as /tmp. */
  readonly temporary: string;
  /** The image's working folder; default: the repository. */
  readonly folder?: string;
  /** What node is given before the container's arguments. */
  readonly nodeOptions?: readonly string[];
}

/** Writes a snapshot with one model `m` at a Messages upstream, and one organization with credit. */
export async function writeSnapshot(folder: string, upstreamUrl: string): Promise<void> {
  const upstreams = [sampleUpstream({ url: `${upstreamUrl}/v1/messages` })];
  const apiKeys = [
    { name: "ci", sha256: sha256(sampleKeys.inference), hint: "sk-svc-a", project: "default" },
  ];
  const grants = [{ name: "start", amountMicros: "1000000000000" }];
  const routing = sampleRouting(1, {
    routes: [sampleRoute("m", { upstreams })],
    organizations: [sampleOrganization("org_acme", { grants, apiKeys })],
  });
  await writeFiles(folder, slotFiles("a", routing));
}

/** Values of the Secrets that the chart names when it is given nothing but the stores. */
export const storeSecrets = (postgresUrl: string, redisUrl: string): ChartPodOptions["secrets"] => ({
  pg: { url: postgresUrl },
  rd: { url: redisUrl },
  "gapura-seal": { "seal-keys": `k1:${Buffer.alloc(32, 1).toString("base64")}` },
});

export class ChartPod {
  readonly child: ChildProcess;
  readonly ports: Readonly<Record<string, number>>;
  readonly #container: Container;
  readonly #graceMs: number;
  #output = "";

  private constructor(
    options: ChartPodOptions,
    container: Container,
    ports: Record<string, number>,
    graceSeconds: number,
  ) {
    this.#container = container;
    this.#graceMs = graceSeconds * 1000;
    this.ports = ports;
    this.child = spawn(process.execPath, [...NODE_FLAGS, ...(options.nodeOptions ?? []), ...container.args], {
      cwd: options.folder ?? root,
      env: environmentOf(options, container, ports),
      stdio: ["ignore", "pipe", "pipe"],
    });
    watchForSurprises(this.child, "a pod");
    for (const stream of [this.child.stdout, this.child.stderr])
      stream?.setEncoding("utf8").on("data", (text: string) => (this.#output += text));
  }

  static async start(options: ChartPodOptions): Promise<ChartPod> {
    const deployment = options.rendered
      .all("Deployment")
      .find(({ metadata }) => metadata.name.endsWith("-data-plane"));
    if (deployment === undefined) throw new Error("the chart renders no data plane");
    const pod = podSchema.parse(podOf(deployment));
    const [container] = pod.containers;
    const ports: Record<string, number> = {};
    for (const { name } of container.ports) ports[name] = await freePort();
    return new ChartPod(options, container, ports, pod.terminationGracePeriodSeconds);
  }

  get url(): string {
    return `http://127.0.0.1:${this.ports["http"]}`;
  }

  /** Everything it printed so far. */
  output(): string {
    return this.#output;
  }

  /** One probe, by the path and the port that the chart gives it. */
  async probe(name: ProbeName): Promise<boolean> {
    const { path, port } = this.#container[name].httpGet;
    const answer = await fetch(`http://127.0.0.1:${this.ports[port]}${path}`, {
      signal: AbortSignal.timeout(3000),
    }).catch(() => null);
    await answer?.body?.cancel();
    return answer?.ok === true;
  }

  /** Resolves when it may get requests. @throws when it ends, or is not up within what the start-up probe allows. */
  async ready(): Promise<void> {
    const { periodSeconds, failureThreshold } = this.#container.startupProbe;
    const deadline = Date.now() + periodSeconds * failureThreshold * 1000;
    while (!(await this.probe("readinessProbe"))) {
      if (hasEnded(this.child) || Date.now() > deadline)
        throw new Error(`the pod does not get ready:\n${this.#output.slice(-3000)}`);
      await sleep(50);
    }
  }

  /**
   * As the kubelet ends a pod: the pre-stop pause (shortened by `scale`), SIGTERM, and SIGKILL after the grace.
   * @returns the exit code; null when it had to be killed.
   */
  async terminate(scale = 1): Promise<number | null> {
    await sleep(this.#container.lifecycle.preStop.sleep.seconds * 1000 * scale);
    await stopProcess(this.child, "SIGTERM", this.#graceMs);
    return this.child.exitCode;
  }

  /** For the end of a test. */
  async kill(): Promise<void> {
    await stopProcess(this.child, "SIGKILL", 5000);
  }
}

function environmentOf(
  { secrets, snapshot, temporary }: ChartPodOptions,
  { env, ports: declared }: Container,
  ports: Readonly<Record<string, number>>,
): NodeJS.ProcessEnv {
  const environment: Record<string, string> = {};
  for (const { name, value, valueFrom } of env) {
    const { name: secret = "", key = "" } = valueFrom?.secretKeyRef ?? {};
    const given = value ?? (valueFrom?.fieldRef === undefined ? secrets[secret]?.[key] : randomUUID());
    if (given === undefined) throw new Error(`${name}: there is no Secret ${secret} with a key ${key}`);
    environment[name] = given;
  }
  // The same places under other names: a machine has one 8080 and one /etc.
  for (const [name, variable] of [
    ["http", "PORT"],
    ["ops", "OPS_PORT"],
  ] as const) {
    const port = declared.find((entry) => entry.name === name)?.containerPort;
    if (environment[variable] !== String(port))
      throw new Error(`${variable} is ${environment[variable]}, the port named ${name} ${port}`);
    environment[variable] = String(ports[name]);
  }
  return {
    ...programEnvironment(),
    ...environment,
    HOST: "127.0.0.1",
    GAPURA_CONFIG_DIR: snapshot,
    TMPDIR: temporary,
  };
}
