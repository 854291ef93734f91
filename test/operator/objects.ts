/** Our objects in one namespace, as a person declares them and looks at them. */
import { API_VERSION } from "../../operator/api/fields.ts";
import { type Kind, kinds } from "../../operator/api/kinds.ts";
import { gapuraPath, type KubeClient, type KubeObject } from "./kube-client.ts";
import { conditionText, observedGeneration } from "./kube-world.ts";

export class Objects {
  readonly client: KubeClient;
  readonly namespace: string;
  /** Told when something was waited for in vain: what to print beside it. */
  readonly #evidence: () => string;

  constructor(client: KubeClient, namespace: string, evidence: () => string) {
    this.client = client;
    this.namespace = namespace;
    this.#evidence = evidence;
  }

  path(kind: Kind, name?: string): string {
    return gapuraPath(kinds[kind].plural, this.namespace, name);
  }

  get(kind: Kind, name: string): Promise<KubeObject> {
    return this.client.must("GET", this.path(kind, name));
  }

  apply(kind: Kind, name: string, spec: unknown, annotations?: Record<string, string>): Promise<KubeObject> {
    const metadata = {
      name,
      namespace: this.namespace,
      ...(annotations === undefined ? {} : { annotations }),
    };
    return this.client.must("PATCH", this.path(kind, name), {
      apiVersion: API_VERSION,
      kind,
      metadata,
      spec,
    });
  }

  async delete(kind: Kind, name: string): Promise<void> {
    await this.client.must("DELETE", this.path(kind, name));
  }

  applySecret(name: string, values: Record<string, string>): Promise<KubeObject> {
    return this.client.must("PATCH", this.#secretPath(name), {
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name, namespace: this.namespace },
      stringData: values,
    });
  }

  async deleteSecret(name: string): Promise<void> {
    await this.client.must("DELETE", this.#secretPath(name));
  }

  /** Decoded values of a Secret; null when there is none. */
  async secret(name: string): Promise<Record<string, string> | null> {
    const { status, body } = await this.client.call("GET", this.#secretPath(name));
    if (status === 404) return null;
    const { data = {} } = body as { data?: Record<string, string> };
    return Object.fromEntries(
      Object.entries(data).map(([key, value]) => [key, Buffer.from(value, "base64").toString()]),
    );
  }

  /** `True Programmed: 1/1 pods`. */
  async condition(kind: Kind, name: string, type: string): Promise<string> {
    return conditionText(await this.get(kind, name), type);
  }

  async version(kind: Kind, name: string): Promise<string | undefined> {
    return (await this.get(kind, name)).metadata?.resourceVersion;
  }

  async until(what: string, holds: () => Promise<boolean>, timeoutMs = 40_000): Promise<void> {
    try {
      await this.client.until(what, holds, timeoutMs);
    } catch (error) {
      throw new Error(`${String(error)}\n${this.#evidence().slice(-3000)}`, { cause: error });
    }
  }

  /** Waits until the status speaks of the present generation and the condition reads like `text`. */
  async untilCondition(
    kind: Kind,
    name: string,
    type: string,
    text: RegExp,
    timeoutMs = 40_000,
  ): Promise<void> {
    let last = "";
    const holds = async () => {
      const object = await this.get(kind, name);
      last = conditionText(object, type);
      return observedGeneration(object) === object.metadata?.generation && text.test(last);
    };
    try {
      await this.until(`${kind} ${name} ${type} ${String(text)}`, holds, timeoutMs);
    } catch (error) {
      throw new Error(`${String(error)}\nlast: ${last}`, { cause: error });
    }
  }

  #secretPath(name: string): string {
    return `/api/v1/namespaces/${this.namespace}/secrets/${name}`;
  }
}

/** A ModelRoute with one upstream that speaks Messages and takes its key from Secret `provider`. */
export const routeSpec = (baseURL: string, more: object = {}): object => ({
  limits: { contextTokens: 1000, maxOutputTokens: 100 },
  priceTableRef: { name: "prices" },
  upstreams: [
    {
      name: "one",
      dialect: "Messages",
      baseURL,
      credentials: { secretKeyRef: { name: "provider", key: "api-key" } },
    },
  ],
  ...more,
});

export const priceSpec = (...models: string[]): object => ({
  unit: "USD",
  models: models.map((model) => ({ model, input: "1", output: "2" })),
});
