/** The whole product as a user starts it: `npm start` in a process of its own, on free ports and a temporary folder. */
import { spawn, type ChildProcess } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { hasEnded } from "../../hack/processes.ts";
import { watchForSurprises } from "../fakes/surprises.ts";

const root = resolve(import.meta.dirname, "../..");
const START_TIMEOUT_MS = 150_000;

export interface ProductOptions {
  readonly manifests: string;
  readonly data: string;
  /** Of its API; any that is free unless told. */
  readonly port?: number;
  /** Added to the environment. */
  readonly environment?: Readonly<Record<string, string>>;
}

export interface Product {
  /** Of the `ready` line. */
  readonly url: string;
  readonly opsUrl: string;
  /** The process of `npm`. */
  readonly process: ChildProcess;
  /** Everything printed so far, both streams. */
  output(): string;
  /** Sends the signal to npm alone and waits for its end. */
  stop(signal?: NodeJS.Signals): Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
}

/** @throws Error with the output when no `ready` line comes. */
export async function startProduct(options: ProductOptions): Promise<Product> {
  const flags = {
    port: String(options.port ?? 0),
    "ops-port": "0",
    data: options.data,
    manifests: options.manifests,
  };
  const child = spawn(
    "npm",
    ["start", "--silent", "--", ...Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value])],
    {
      cwd: root,
      env: { ...process.env, NODE_OPTIONS: "", ...options.environment },
      // A group of its own, so that a test can signal all of it.
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
    },
  );
  watchForSurprises(child, "the product");
  let output = "";
  child.stdout.on("data", (bytes: Buffer) => (output += bytes.toString()));
  child.stderr.on("data", (bytes: Buffer) => (output += bytes.toString()));
  const deadline = Date.now() + START_TIMEOUT_MS;
  for (;;) {
    const url = /^ready (http:\S+)$/m.exec(output)?.[1];
    const opsUrl = /configuration: (http:\S+)$/m.exec(output)?.[1];
    // The lines after `ready` belong to the start as well.
    if (url !== undefined && opsUrl !== undefined && output.includes("/v1/responses")) {
      return { url, opsUrl, process: child, output: () => output, stop: (signal) => end(child, signal) };
    }
    if (hasEnded(child) || Date.now() > deadline) {
      await end(child, "SIGTERM");
      throw new Error(`npm start did not get ready:\n${output}`);
    }
    await sleep(25);
  }
}

async function end(child: ChildProcess, signal: NodeJS.Signals = "SIGTERM") {
  if (!hasEnded(child)) {
    const ended = new Promise((done) => child.once("exit", done));
    child.kill(signal);
    await ended;
  }
  return { code: child.exitCode, signal: child.signalCode };
}

/** `fetch` as SDKs do it: again while a busy machine sheds load. Any other 503 is the test's to judge. */
export async function fetchServed(url: string, init: RequestInit): Promise<Response> {
  for (;;) {
    const answer = await fetch(url, init);
    if (answer.status !== 503) return answer;
    const { headers, status } = answer;
    const said = await answer.text();
    if (!said.includes("The service is overloaded")) return new Response(said, { headers, status });
    await sleep(Number(headers.get("retry-after")) * 1000);
  }
}

/** A temporary folder that goes away with the test. */
export function temporaryFolder(): { readonly path: string; [Symbol.dispose](): void } {
  const path = fs.mkdtempSync(join(tmpdir(), "gapura-product-"));
  return { path, [Symbol.dispose]: () => fs.rmSync(path, { recursive: true, force: true }) };
}

/** Manifests with one model for each dialect (`m-messages`, `m-chat`, `m-responses`), all at one upstream. */
export function writeManifests(folder: string, upstreamUrl: string): void {
  fs.mkdirSync(folder, { recursive: true });
  const dialects = { messages: "Messages", chat: "ChatCompletions", responses: "Responses" };
  for (const [name, dialect] of Object.entries(dialects)) {
    writeRoute(folder, { name: `m-${name}`, dialect, upstreamUrl, upstreamModel: `upstream-${name}` });
  }
  fs.writeFileSync(
    join(folder, "rest.yaml"),
    `
apiVersion: gapura.dev/v1alpha1
kind: PriceTable
metadata: {name: default}
spec:
  unit: USD
  models:
${Object.keys(dialects)
  .map((name) => `  - {model: m-${name}, input: "3", output: "15"}`)
  .join("\n")}
---
apiVersion: gapura.dev/v1alpha1
kind: Organization
metadata: {name: acme}
spec:
  id: org_acme
  credits: {grants: [{name: first, amount: "1000"}]}
  apiKeys: [{name: ci, secretKeyRef: {name: acme-ci, key: api-key}}]
  adminKeys: [{name: root, secretKeyRef: {name: acme-admin, key: admin-key}}]
---
apiVersion: v1
kind: Secret
metadata: {name: upstream}
stringData: {api-key: provider-key-of-acme}
`,
  );
}

export interface TestRoute {
  readonly name: string;
  /** As in the YAML. */
  readonly dialect: string;
  readonly upstreamUrl: string;
  readonly upstreamModel: string;
}

/** Writes one route's file as an editor does: a new file, renamed into place. */
export function writeRoute(folder: string, route: TestRoute): void {
  const file = join(folder, `${route.name}.yaml`);
  fs.writeFileSync(
    `${file}.swp`,
    `
apiVersion: gapura.dev/v1alpha1
kind: ModelRoute
metadata: {name: ${route.name}}
spec:
  limits: {contextTokens: 100000, maxOutputTokens: 4096}
  upstreams:
  - name: only
    dialect: ${route.dialect}
    baseURL: ${route.upstreamUrl}
    model: ${route.upstreamModel}
    credentials: {secretKeyRef: {name: upstream, key: api-key}}
`,
  );
  fs.renameSync(`${file}.swp`, file);
}

/** All that it printed, and its logs in the data folder. */
export function printedAndLogged(product: Product, data: string): string {
  const logs = fs.readdirSync(data).filter((name) => name.endsWith(".log"));
  if (!logs.includes("data-plane.log")) throw new Error(`no data-plane.log among ${logs.join(", ")}`);
  return [product.output(), ...logs.map((name) => fs.readFileSync(join(data, name), "utf8"))].join("\n");
}

/** The generated keys of `writeManifests`. */
export function readKeys(data: string): { readonly inference: string; readonly admin: string } {
  const read = (...path: string[]) =>
    fs.readFileSync(join(data, "secrets", "default", ...path), "utf8").trim();
  return { inference: read("acme-ci", "api-key"), admin: read("acme-admin", "admin-key") };
}
