/** What docs/kubernetes.md says to delete after `helm uninstall`, run beside another release of the same namespace. */
import { spawnSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import type { KubeAccess } from "../../hack/kube-apiserver.ts";
import { kubeTool } from "../charts/helm.ts";
import { KubeClient, type KubeObject } from "./kube-client.ts";
import { type OperatorProcess, startOperator } from "./kube-world.ts";

const access = inject("kube");
const namespace = "removal";

describe.skipIf(access === null)("removing a release", () => {
  let client: KubeClient;
  const operators: OperatorProcess[] = [];
  beforeAll(async () => {
    client = new KubeClient(access as KubeAccess);
    await client.makeNamespace(namespace);
  });
  afterAll(async () => {
    await end();
    await client.close();
  });
  const end = async () => {
    for (const { child } of operators) child.kill("SIGTERM");
    await Promise.all(operators.map(({ ended }) => ended));
  };
  const namesOf = async (path: string) => {
    const { items = [] } = (await client.must("GET", path)) as { items?: readonly KubeObject[] };
    return items.map(({ metadata }) => metadata?.name ?? "").sort();
  };
  const left = async () => [
    ...(await namesOf(`/api/v1/namespaces/${namespace}/secrets`)),
    ...(await namesOf(`/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases`)),
  ];

  test("leaves nothing that it made, and all of another release's, with its seal key", async () => {
    for (const release of ["one", "two"])
      operators.push(
        startOperator(access as KubeAccess, namespace, `${release}-0`, {
          environment: { SNAPSHOT_NAME: release, WATCH_NAMESPACES: `${namespace}-${release}` },
        }),
      );
    for (const release of ["one", "two"]) await client.makeNamespace(`${namespace}-${release}`);
    const made = (release: string) => [`${release}-a-0`, `${release}-seal`, `${release}-operator`];
    await client.until("both releases have what they need", async () => {
      const names = await left();
      return [...made("one"), ...made("two")].every((name) => names.includes(name));
    });
    await end();
    const ofTwo = (await left()).filter((name) => name.startsWith("two-"));

    const kubectl = await kubeTool("kubectl");
    const env = { ...process.env, KUBECONFIG: (access as KubeAccess).kubeconfig };
    for (const command of await commandsOf("one")) {
      const { status, stderr } = spawnSync(kubectl, command.split(" "), { env, encoding: "utf8" });
      expect([command, status, stderr]).toEqual([command, 0, ""]);
    }
    expect(await left()).toEqual(ofTwo);
  });
});

/** The documented commands that delete Secrets and Leases of the release's namespace, as for another release. */
async function commandsOf(release: string): Promise<string[]> {
  const guide = await readFile(resolve(import.meta.dirname, "..", "..", "docs", "kubernetes.md"), "utf8");
  const [, section = ""] = guide.split("\n## Remove\n");
  const lines = section.split("\n## ")[0]?.match(/^kubectl -n gapura delete (secret|lease) .*$/gm) ?? [];
  expect(lines.length).toBeGreaterThan(1);
  return lines.map((line) =>
    line
      .replace(/ *#.*$/, "")
      .replace(/^kubectl -n gapura /, `-n ${namespace} `)
      // `gapura.dev`, with which labels begin, is every release's.
      .replace(/\bgapura\b(?!\.dev)/g, release),
  );
}
