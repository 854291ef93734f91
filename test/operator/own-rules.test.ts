/** The admission policy that docs/kubernetes.md offers, on a real API server: what of tenants it lets through, and what not. */
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { API_VERSION } from "../../operator/api/fields.ts";
import { type Kind, kinds } from "../../operator/api/kinds.ts";
import { gapuraPath, KubeClient, type KubeObject } from "./kube-client.ts";

const access = inject("kube");
const docs = resolve(import.meta.dirname, "..", "..", "docs", "kubernetes.md");
const group = "/apis/admissionregistration.k8s.io/v1";
const namespace = "own-rules";
const plurals: Readonly<Record<string, string>> = {
  ValidatingAdmissionPolicy: "validatingadmissionpolicies",
  ValidatingAdmissionPolicyBinding: "validatingadmissionpolicybindings",
};

/** Returns the objects of the first YAML below the heading. */
async function documented(): Promise<KubeObject[]> {
  const [, section = ""] = (await readFile(docs, "utf8")).split("### Rules of your own");
  const text = section.split("```")[1]?.replace(/^yaml/, "") ?? "";
  return parseAllDocuments(text).map((document) => document.toJS() as KubeObject);
}

const pathOf = ({ kind = "", metadata }: KubeObject) => `${group}/${plurals[kind]}/${metadata?.name}`;

describe.skipIf(access === null)("the policy of docs/kubernetes.md", () => {
  let client: KubeClient;
  let objects: KubeObject[] = [];
  beforeAll(async () => {
    if (access === null) throw new Error("there is no API server");
    client = new KubeClient(access);
    await client.makeNamespace(namespace);
    objects = await documented();
    for (const object of objects) {
      const { spec } = object as { spec: { matchResources?: object } };
      // Other tests have tenants of their own on this API server.
      if (spec.matchResources !== undefined)
        spec.matchResources = {
          namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": namespace } },
        };
      await client.must("PATCH", pathOf(object), object);
    }
    await client.until(
      "the policy is in effect",
      async () => (await route("http://api.openai.com")) !== null,
    );
  });
  afterAll(async () => {
    for (const object of objects) await client.call("DELETE", pathOf(object));
    await client.close();
  });

  let serial = 0;
  /** Declares an object. @returns why it was refused; null: it was taken. */
  const declare = async (kind: Kind, spec: object): Promise<string | null> => {
    const metadata = { name: `tried-${(serial += 1)}`, namespace };
    const object = { apiVersion: API_VERSION, kind, metadata, spec };
    const { status, body } = await client.call("POST", gapuraPath(kinds[kind].plural, namespace), object);
    return status === 201 ? null : ((body as KubeObject).message ?? "");
  };
  const route = (baseURL: string) =>
    declare("ModelRoute", {
      limits: { contextTokens: 10, maxOutputTokens: 1 },
      upstreams: [{ name: "one", dialect: "Messages", baseURL }],
    });
  const credentials = { secretKeyRef: { name: "engine", key: "key" } };

  test.for(["https://api.openai.com", "https://api.anthropic.com/base"])(
    "an upstream at %s is taken",
    async (url) => {
      expect(await route(url)).toBeNull();
    },
  );

  test.for([
    "http://api.openai.com",
    "https://10.0.0.1",
    "http://gapura-redis:6379",
    "https://gapura.gapura.svc",
    "https://kubernetes.default.svc.cluster.local",
    "https://MODEL.TEAM.SVC",
    "https://model.team.svc.cluster.local.",
    // Found by the search domains of a pod.
    "https://model.team",
    "https://127.1",
    "https://0x7f.1",
    "https://[::1]",
    "https://api.openai.com.example.org",
  ])("an upstream at %s is refused", async (url) => {
    expect(await route(url)).toContain("gapura-tenant-upstreams");
  });

  test("search engines are judged as upstreams are, and tools without one are taken", async () => {
    expect(
      await declare("ToolPolicy", { webFetch: { enabled: true }, webSearch: { enabled: true } }),
    ).toBeNull();
    expect(await declare("ToolPolicy", { webSearch: { engine: { type: "Brave", credentials } } })).toBeNull();
    const inside = "http://searxng.team.svc";
    for (const spec of [
      { webSearch: { engine: { type: "SearXNG", baseURL: inside } } },
      { xSearch: { engine: { type: "X", baseURL: inside, credentials } } },
    ])
      expect(await declare("ToolPolicy", spec)).toContain("gapura-tenant-upstreams");
  });
});
