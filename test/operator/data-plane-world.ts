/** One release in a namespace of its own: operators, real data planes, their stores, and upstreams that say one thing. */
import type { KubeAccess } from "../../hack/kube-apiserver.ts";
import { mustKubectl } from "../charts/kubectl.ts";
import { type FakeUpstream, startUpstream } from "../fakes/upstream/server.ts";
import { freshDatabase, freshRedis, type TestDatabase, type TestStore } from "../integration/stores.ts";
import { DataPlanePod, type DataPlanePodOptions } from "./data-plane-pod.ts";
import { KubeClient } from "./kube-client.ts";
import { type OperatorOptions, type OperatorProcess, startOperator } from "./kube-world.ts";
import { Objects, priceSpec, routeSpec } from "./objects.ts";
import { Service } from "./service.ts";

/** The kubelets' longest pause between two Secrets. */
const DELAY_MS = 40;

export class DataPlaneWorld {
  readonly access: KubeAccess;
  readonly client: KubeClient;
  readonly objects: Objects;
  readonly #stores: { readonly database: TestDatabase; readonly redis: TestStore };
  readonly operators: OperatorProcess[] = [];
  readonly upstreams: FakeUpstream[] = [];
  /** Those that were not stopped. */
  readonly pods: DataPlanePod[] = [];
  #key = "";

  private constructor(
    access: KubeAccess,
    namespace: string,
    stores: { readonly database: TestDatabase; readonly redis: TestStore },
  ) {
    this.access = access;
    this.client = new KubeClient(access);
    this.objects = new Objects(this.client, namespace, () => this.operatorOutput);
    this.#stores = stores;
  }

  /** Declares model `m`, which says `words`, and an organization; runs one operator. */
  static async open(
    access: KubeAccess,
    namespace: string,
    words: string,
    providerKey = "provider-key",
    operator: OperatorOptions = {},
  ) {
    const [database, redis] = await Promise.all([freshDatabase(), freshRedis()]);
    const world = new DataPlaneWorld(access, namespace, { database, redis });
    const { client, objects } = world;
    await client.makeNamespace(namespace);
    world.startOperator("operator-0", operator);
    await objects.applySecret("provider", { "api-key": providerKey });
    await objects.apply("PriceTable", "prices", priceSpec("m"));
    await objects.apply("ModelRoute", "m", routeSpec((await world.upstreamSaying(words)).url));
    await objects.apply("Organization", "acme", {
      credits: { grants: [{ name: "first", amount: "1000000" }] },
      apiKeys: [{ name: "ci", secretKeyRef: { name: "acme-ci", key: "api-key" } }],
    });
    await objects.until("the key is made", async () => (await objects.secret("acme-ci")) !== null);
    world.#key = (await objects.secret("acme-ci"))?.["api-key"] ?? "";
    return world;
  }

  /** The organization's generated key. */
  get key(): string {
    return this.#key;
  }

  get databaseUrl(): string {
    return this.#stores.database.url;
  }

  get operatorOutput(): string {
    return this.operators.map((operator) => operator.output()).join("");
  }

  /** New clients, who have seen nothing fail yet. */
  service(): Service {
    return new Service(() => this.pods, this.#key);
  }

  startOperator(name: string, options: OperatorOptions = {}): OperatorProcess {
    const operator = startOperator(this.access, this.objects.namespace, name, options);
    this.operators.push(operator);
    return operator;
  }

  async addPod(
    name: string,
    more: Pick<DataPlanePodOptions, "preload" | "environment"> = {},
  ): Promise<DataPlanePod> {
    const pod = new DataPlanePod({
      client: this.client,
      namespace: this.objects.namespace,
      name,
      postgresUrl: this.#stores.database.url,
      redisUrl: this.#stores.redis.url,
      longestDelayMs: DELAY_MS,
      ...more,
    });
    this.pods.push(pod);
    await pod.start();
    return pod;
  }

  /** As a rollout ends the oldest pod: drained, then gone. */
  async stopOldestPod(): Promise<void> {
    await this.pods[0]?.stop();
    this.pods.shift();
  }

  async upstreamSaying(text: string): Promise<FakeUpstream> {
    const upstream = await startUpstream({
      fallback: () => ({ answer: { parts: [{ type: "text", text }] }, faults: { delayHeadersMs: 20 } }),
    });
    this.upstreams.push(upstream);
    return upstream;
  }

  /** Edits the route with kubectl, so that it says these words. */
  async editToSay(words: string): Promise<void> {
    const { url } = await this.upstreamSaying(words);
    const patch = JSON.stringify([{ op: "replace", path: "/spec/upstreams/0/baseURL", value: url }]);
    await mustKubectl(this.access, [
      "--namespace",
      this.objects.namespace,
      "patch",
      "modelroute",
      "m",
      "--type=json",
      "--patch",
      patch,
    ]);
  }

  async close(): Promise<void> {
    await Promise.all(this.pods.map((pod) => pod.kill()));
    for (const { child, ended } of this.operators) {
      child.kill("SIGKILL");
      await ended;
    }
    for (const upstream of this.upstreams) await upstream.close();
    await this.#stores.redis[Symbol.asyncDispose]();
    await this.#stores.database.drop();
    await this.client.close();
  }
}
