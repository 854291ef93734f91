/** Everything that the charts render, judged by a real API server: strict fields, our own CRDs and Pod Security. */
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import type { KubeAccess } from "../../hack/kube-apiserver.ts";
import { kubeCrds } from "../../hack/kube-crds.ts";
import { KubeClient } from "../operator/kube-client.ts";
import { helm, type KubeObject, podOf, render } from "./helm.ts";
import { kubectl, mustKubectl } from "./kubectl.ts";
import { everything, matrix, stores } from "./matrix.ts";

const kube = inject("kube");
const home = "dry-run";

describe.skipIf(kube === null)("a dry run on the server", () => {
  const access = kube as KubeAccess;
  let client: KubeClient;

  const apply = (objects: readonly unknown[], output: "name" | "json" = "name") =>
    kubectl(
      access,
      ["apply", "--server-side", "--dry-run=server", "--validate=strict", "-o", output, "-f", "-"],
      objects,
    );
  const makePods = (specs: readonly unknown[]) =>
    kubectl(
      access,
      ["create", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-"],
      specs.map((spec, position) => ({
        apiVersion: "v1",
        kind: "Pod",
        metadata: { name: `of-template-${position}`, namespace: home },
        spec,
      })),
    );

  beforeAll(async () => {
    client = new KubeClient(access);
    const definitions = await kubeCrds((line) => process.stderr.write(`charts: ${line}\n`));
    const crds: unknown[] = await Promise.all(
      definitions.map(async (path) => parse(await readFile(path, "utf8")) as unknown),
    );
    await mustKubectl(access, ["apply", "--server-side", "-f", "-"], crds);
    for (const path of [
      "/apis/gateway.networking.k8s.io/v1/httproutes",
      "/apis/monitoring.coreos.com/v1/servicemonitors",
      "/apis/monitoring.coreos.com/v1/prometheusrules",
    ])
      await client.until(`${path} is served`, async () => (await client.call("GET", path)).status === 200);
    await client.must("POST", "/api/v1/namespaces", {
      apiVersion: "v1",
      kind: "Namespace",
      metadata: {
        name: home,
        labels: {
          "pod-security.kubernetes.io/enforce": "restricted",
          "pod-security.kubernetes.io/warn": "restricted",
        },
      },
    });
    for (const name of ["team-a", "team-b"]) await client.makeNamespace(name);
  });
  afterAll(() => client.close());

  test.each(matrix)("%s: every object is accepted without a warning", async (_name, values) => {
    const { objects } = await render(values, "gapura", home);
    const { status, out, err } = await apply(objects);
    expect({ status, err }).toEqual({ status: 0, err: "" });
    expect(out.trim().split("\n")).toHaveLength(objects.length);
  });

  test.each(matrix)("%s: every pod may run where Pod Security is restricted", async (_name, values) => {
    const { objects } = await render(values, "gapura", home);
    const pods = objects.map(podWithVolumes).filter((pod) => pod !== null);
    const { status, out, err } = await makePods(pods);
    expect({ status, err }).toEqual({ status: 0, err: "" });
    expect(out.trim().split("\n")).toHaveLength(pods.length);
  });

  // Argo CD knows what the server fills in of its own kinds alone: of others it would show a difference for ever.
  test("what the server would fill in of a kind that has a definition stands there already", async () => {
    const kinds = ["HTTPRoute", "PrometheusRule", "ServiceMonitor"];
    const { objects } = await render(everything, "gapura", home);
    const custom = objects.filter(({ kind }) => kinds.includes(kind));
    const { items } = JSON.parse((await apply(custom, "json")).out) as { items: readonly KubeObject[] };
    expect(items.map(({ kind }) => kind).toSorted()).toEqual(kinds);
    const specs = (all: readonly KubeObject[]) =>
      Object.fromEntries(all.map(({ kind, spec }) => [kind, spec]));
    expect(specs(custom)).toEqual(specs(items));
  });

  test("so does the kind of a quickstart's volumes, of which Argo CD knows as little", async () => {
    const rendered = await render({ quickstart: { enabled: true } }, "gapura", home);
    const sets = rendered.all("StatefulSet");
    const { items } = JSON.parse((await apply(sets, "json")).out) as {
      items: readonly KubeObject[];
    };
    const kindsOf = (of: readonly KubeObject[]) =>
      of.map(({ metadata: { name }, spec }) => {
        const { volumeClaimTemplates } = spec as { volumeClaimTemplates: readonly Partial<KubeObject>[] };
        return [name, volumeClaimTemplates.map(({ apiVersion, kind }) => ({ apiVersion, kind }))];
      });
    expect(items).toHaveLength(2);
    expect(kindsOf(sets)).toEqual(kindsOf(items));
  });

  test("the dry run refuses a wrong field, and a pod that asks for more", async () => {
    const deployment = (await render(stores, "gapura", home)).get("Deployment", "gapura-operator");
    const spec = { ...(deployment["spec"] as object), replica: 3 };
    expect((await apply([{ ...deployment, spec }])).err).toMatch(/unknown field "replica"/);
    const pod = podOf(deployment) as object;
    expect((await makePods([{ ...pod, hostNetwork: true }])).err).toMatch(/violates PodSecurity "restricted/);
  });

  test("the definitions' chart is accepted as it is", async () => {
    const { out } = await helm(["template", "crds", "charts/gapura-crds"], {});
    const crds = parseAllDocuments(out).map((document): unknown => document.toJSON());
    expect(await apply(crds)).toMatchObject({ status: 0, err: "" });
  });
});

/** The pod as its controller makes it: a StatefulSet's claims are volumes by then. */
function podWithVolumes(object: KubeObject): unknown {
  const pod = podOf(object) as { volumes?: object[] } | null;
  const spec = object["spec"] as { volumeClaimTemplates?: { metadata: { name: string } }[] } | undefined;
  if (pod === null || spec?.volumeClaimTemplates === undefined) return pod;
  const claims = spec.volumeClaimTemplates.map(({ metadata: { name } }) => ({
    name,
    persistentVolumeClaim: { claimName: name },
  }));
  return { ...pod, volumes: [...(pod.volumes ?? []), ...claims] };
}
