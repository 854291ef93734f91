/** The operator as the chart runs it: its environment out of the Deployment, its rights those of its account. */
import { spawn, type ChildProcess } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { z } from "zod";
import type { KubeAccess } from "../../hack/kube-apiserver.ts";
import { endWithUs } from "../../hack/reaper.ts";
import type { KubeClient } from "../operator/kube-client.ts";
import type { Rendered } from "./helm.ts";
import { programEnvironment } from "../fakes/program-environment.ts";

const root = resolve(import.meta.dirname, "../..");

const tokenSchema = z.object({ status: z.object({ token: z.string() }) });

/** A token of a service account, as the kubelet asks for it. */
export async function accountToken(client: KubeClient, namespace: string, name: string): Promise<string> {
  const answer = await client.must("POST", `/api/v1/namespaces/${namespace}/serviceaccounts/${name}/token`, {
    apiVersion: "authentication.k8s.io/v1",
    kind: "TokenRequest",
    spec: { expirationSeconds: 3600 },
  });
  return tokenSchema.parse(answer).status.token;
}

const deploymentSchema = z.object({
  spec: z.object({
    template: z.object({
      metadata: z.object({ labels: z.record(z.string(), z.string()) }),
      spec: z.object({
        serviceAccountName: z.string(),
        containers: z.tuple([
          z.object({
            args: z.array(z.string()),
            env: z.array(
              z.object({
                name: z.string(),
                value: z.string().optional(),
                valueFrom: z.object({ fieldRef: z.object({ fieldPath: z.string() }) }).optional(),
              }),
            ),
          }),
        ]),
      }),
    }),
  }),
});

/** Labels of the pods that a Deployment makes. */
export const podLabels = (rendered: Rendered, deployment: string): Readonly<Record<string, string>> =>
  z
    .object({
      spec: z.object({
        template: z.object({ metadata: z.object({ labels: z.record(z.string(), z.string()) }) }),
      }),
    })
    .parse(rendered.get("Deployment", deployment)).spec.template.metadata.labels;

export interface Started {
  readonly child: ChildProcess;
  /** Everything it printed so far. */
  readonly output: () => string;
  readonly ended: Promise<number | null>;
}

/** `end` it, or the test leaves a process behind. Only the address of the API server and the ops port are ours. */
export async function startOperatorOfChart(
  access: KubeAccess,
  rendered: Rendered,
  token: string,
  folder: string,
): Promise<Started> {
  const operator = rendered.all("Deployment").find(({ metadata }) => metadata.name.endsWith("-operator"));
  const { containers } = deploymentSchema.parse(operator).spec.template.spec;
  const [{ args, env }] = containers;
  const fields: Readonly<Record<string, string | undefined>> = {
    "metadata.name": "operator-0",
    "metadata.namespace": operator?.metadata.namespace,
  };
  const environment: Record<string, string> = {};
  for (const { name, value, valueFrom } of env) {
    const given = value ?? fields[valueFrom?.fieldRef.fieldPath ?? ""];
    if (given !== undefined) environment[name] = given;
  }
  const kubeconfig = join(folder, "kubeconfig");
  await writeFile(kubeconfig, (await readFile(access.kubeconfig, "utf8")).replace(access.token, token));
  const child = spawn(process.execPath, args, {
    cwd: root,
    env: { ...programEnvironment(), ...environment, KUBECONFIG: kubeconfig, OPS_PORT: "0" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  endWithUs(child, "SIGTERM");
  let text = "";
  child.stdout.on("data", (chunk: Buffer) => (text += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (text += chunk.toString()));
  const ended = new Promise<number | null>((done) => child.once("exit", (code) => done(code)));
  return { child, output: () => text, ended };
}
