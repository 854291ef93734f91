/** Ten thousand routes as a folder of YAML, the operator that compiles it, and a data plane that serves it. */
import type { ChildProcess } from "node:child_process";
import { mkdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { stopProcess } from "../../hack/processes.ts";
import type { GapuraProcess, World } from "./world.ts";

const ROUTES_IN_A_FILE = 100;
/** As many as a PriceTable may name (rule 6.8). */
const PRICES_IN_A_TABLE = 200;
/** The file that is edited. */
const EDITED = 3;
/** What an edit set in motion is over by then: acknowledgement, collected garbage. */
const QUIET_MS = 1_000;

export class Manifests {
  readonly files: number;
  readonly #folder: string;
  readonly #operator: ChildProcess;
  readonly #gapura: GapuraProcess;

  private constructor(folder: string, files: number, operator: ChildProcess, gapura: GapuraProcess) {
    this.#folder = folder;
    this.files = files;
    this.#operator = operator;
    this.#gapura = gapura;
  }

  static async open(world: World, routes: number): Promise<Manifests> {
    const folder = join(world.folder, "manifests");
    const out = join(world.folder, "compiled");
    for (const path of [folder, out]) await mkdir(path);
    const files = Math.ceil(routes / ROUTES_IN_A_FILE);
    await writeFile(join(folder, "prices.yaml"), prices(routes));
    for (let file = 0; file < files; file += 1)
      await writeFile(join(folder, `routes-${file}.yaml`), routesOf(file, "first"));
    const operator = world.operator(folder, out);
    const gapura = await world.gapura({ configuration: out });
    return new Manifests(folder, files, operator, gapura);
  }

  /** Saves one route anew, as an editor does. @returns milliseconds until it is served. */
  async edit(displayName: string): Promise<number> {
    await sleep(QUIET_MS);
    const before = await this.#gapura.reloads();
    const file = join(this.#folder, `routes-${EDITED}.yaml`);
    await writeFile(`${file}.draft`, routesOf(EDITED, displayName));
    const started = performance.now();
    await rename(`${file}.draft`, file);
    while ((await this.#gapura.reloads()) === before) await sleep(5);
    return performance.now() - started;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#gapura.stop();
    await stopProcess(this.#operator, "SIGTERM", 10_000);
  }
}

const tableOf = (route: number) => `prices-${Math.floor(route / PRICES_IN_A_TABLE)}`;

function prices(routes: number): string {
  const tables = Map.groupBy(
    Array.from({ length: routes }, (_, route) => route),
    tableOf,
  );
  return Array.from(tables, ([name, members]) =>
    [
      "apiVersion: gapura.dev/v1alpha1",
      "kind: PriceTable",
      `metadata: {name: ${name}}`,
      "spec:",
      "  unit: Credit",
      "  models:",
      ...members.map((route) => `  - {model: model-${route}, input: "96", output: "480"}`),
    ].join("\n"),
  ).join("\n---\n");
}

/** Only the first route of a file has a display name that changes. */
function routesOf(file: number, displayName: string): string {
  return Array.from({ length: ROUTES_IN_A_FILE }, (_, n) => {
    const route = file * ROUTES_IN_A_FILE + n;
    return [
      "apiVersion: gapura.dev/v1alpha1",
      "kind: ModelRoute",
      `metadata: {name: model-${route}}`,
      "spec:",
      `  displayName: ${n === 0 ? displayName : "unchanged"}`,
      `  priceTableRef: {name: ${tableOf(route)}}`,
      "  limits: {contextTokens: 200000, maxOutputTokens: 64000}",
      "  upstreams:",
      "  - {name: only, dialect: ChatCompletions, baseURL: http://127.0.0.1:9}",
    ].join("\n");
  }).join("\n---\n");
}
