/** A bare client of the API server for tests: what a test says is what goes over the wire. */
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, fetch } from "undici";
import type { KubeAccess } from "../../hack/kube-apiserver.ts";

export interface KubeAnswer {
  readonly status: number;
  readonly body: unknown;
}

/** The fields of a Kubernetes object or Status that tests look at. */
export interface KubeObject {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata?: {
    readonly name?: string;
    readonly namespace?: string;
    readonly uid?: string;
    readonly generation?: number;
    readonly resourceVersion?: string;
  };
  readonly spec?: unknown;
  readonly status?: unknown;
  readonly message?: string;
}

export class KubeClient {
  readonly access: KubeAccess;
  readonly #dispatcher: Agent;

  constructor(access: KubeAccess) {
    this.access = access;
    this.#dispatcher = new Agent({ connect: { ca: access.certificateAuthority } });
  }

  /** PATCH is a server-side apply with strict field validation, as `kubectl apply --server-side` does it. */
  async call(
    method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE",
    path: string,
    body?: unknown,
  ): Promise<KubeAnswer> {
    const apply = method === "PATCH";
    const query = method === "GET" || method === "DELETE" ? "" : "?fieldValidation=Strict";
    const answer = await fetch(
      `${this.access.url}${path}${query}${apply ? "&fieldManager=test&force=true" : ""}`,
      {
        method,
        dispatcher: this.#dispatcher,
        headers: {
          authorization: `Bearer ${this.access.token}`,
          "content-type": apply ? "application/apply-patch+yaml" : "application/json",
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        signal: AbortSignal.timeout(30_000),
      },
    );
    const text = await answer.text();
    return { status: answer.status, body: text.startsWith("{") ? (JSON.parse(text) as unknown) : text };
  }

  /** The same, for calls that have to succeed. @throws with the server's own words. */
  async must(...args: Parameters<KubeClient["call"]>): Promise<KubeObject> {
    const { status, body } = await this.call(...args);
    if (status >= 300) throw new Error(`${args[0]} ${args[1]}: ${status} ${JSON.stringify(body)}`);
    return body as KubeObject;
  }

  /** Waits until the condition holds. @throws naming it after `timeoutMs`. */
  async until(what: string, holds: () => Promise<boolean>, timeoutMs = 20_000): Promise<void> {
    const deadline = Date.now() + timeoutMs;
    while (!(await holds())) {
      if (Date.now() > deadline) throw new Error(`waited in vain: ${what}`);
      await sleep(100);
    }
  }

  async makeNamespace(name: string): Promise<void> {
    await this.must("POST", "/api/v1/namespaces", {
      apiVersion: "v1",
      kind: "Namespace",
      metadata: { name },
    });
  }

  async close(): Promise<void> {
    await this.#dispatcher.close();
  }
}

/** The path of our kinds' objects. */
export const gapuraPath = (plural: string, namespace: string, name?: string): string =>
  `/apis/gapura.dev/v1alpha1/namespaces/${namespace}/${plural}${name === undefined ? "" : `/${name}`}`;
