/** vitest's global set-up of the operator tests: one kube-apiserver with our CRDs for all files. */
import type { TestProject } from "vitest/node";
import { readdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parse } from "yaml";
import { type KubeAccess, startKubeApiServer } from "../../hack/kube-apiserver.ts";
import { kubeBinaries } from "../../hack/kube-binaries.ts";
import { KubeClient } from "./kube-client.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** null: there is no Go on this machine to build a kube-apiserver with. */
    kube: KubeAccess | null;
  }
}

const crds = resolve(import.meta.dirname, "..", "..", "crds");

export default async function setup(project: TestProject): Promise<(() => Promise<void>) | void> {
  const say = (line: string) => process.stderr.write(`operator tests: ${line}\n`);
  const binaries = await kubeBinaries(say);
  if (binaries === null) {
    say("there is no Go to build a kube-apiserver with; these tests are skipped (install Go 1.25 or newer)");
    project.provide("kube", null);
    return;
  }
  const server = await startKubeApiServer(binaries);
  try {
    await applyCrds(new KubeClient(server.access));
  } catch (error) {
    await server.stop();
    throw error;
  }
  project.provide("kube", server.access);
  return () => server.stop();
}

/** Applies every committed CRD and waits until the API server serves it. */
export async function applyCrds(client: KubeClient): Promise<void> {
  const files = (await readdir(crds)).filter((name) => name.endsWith(".yaml"));
  for (const file of files) await applyDefinition(client, file.replace(/\.yaml$/, ""));
}

/** Applies the committed CRD of this plural name and waits until the API server serves it. */
export async function applyDefinition(client: KubeClient, name: string): Promise<void> {
  const definition: unknown = parse(await readFile(join(crds, `${name}.yaml`), "utf8"));
  await client.must(
    "PATCH",
    `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${name}.gapura.dev`,
    definition,
  );
  await client.until(`${name} is served`, async () => {
    const answer = await client.call("GET", `/apis/gapura.dev/v1alpha1/${name}`);
    return answer.status === 200;
  });
}
