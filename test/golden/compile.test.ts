/**
 * Folders of YAML → snapshot and statuses. A case is a folder: `input/`, or `step-1/`, `step-2/` … for what happens
 * one after the other; `case.json` may say what the data plane answers. Every case runs twice, the second time
 * with an operator that is started anew before each step: it must come to the same result.
 */
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Identities } from "../../operator/folder/identities.ts";
import { keyFile } from "../../operator/folder/key-files.ts";
import { fileFaultLine } from "../../operator/folder/print.ts";
import { FolderSource, type LocatedFault } from "../../operator/folder/source.ts";
import { type ObjectStatus, type PodReport, REASONS } from "../../operator/plan/conditions.ts";
import { reference } from "../../operator/plan/objects.ts";
import { decodeSlots } from "../../operator/plan/shards.ts";
import { readTenancy, type Tenancy, type TenancySettings } from "../../operator/plan/tenancy.ts";
import { Reconciler } from "../../operator/reconcile.ts";

const cases = join(import.meta.dirname, "compile");
const names = (await readdir(cases, { withFileTypes: true })).filter((entry) => entry.isDirectory()).map(({ name }) => name);
const NOW_MS = Date.UTC(2026, 10, 21);

let work: string;
beforeAll(async () => {
  work = await mkdtemp(join(tmpdir(), "gapura-golden-"));
});
afterAll(() => rm(work, { recursive: true, force: true }));

interface CaseOptions {
  /** What the data plane answers: it holds all that was published (default), or nobody asks, or nobody is there. */
  readonly pods?: "all" | "unasked" | "none";
  /** Of each step, in their order; the last one holds for the rest. Default: Trusted. */
  readonly tenancy?: readonly TenancySettings[];
  /** Run under both tenancies; what Namespaced gives stands in `expected-namespaced.json`. */
  readonly both?: boolean;
}

async function optionsOf(name: string): Promise<CaseOptions> {
  const text = await readFile(join(cases, name, "case.json"), "utf8").catch(() => "{}");
  return JSON.parse(text) as CaseOptions;
}

const stepsOf = async (name: string): Promise<string[]> =>
  (await readdir(join(cases, name))).filter((entry) => entry === "input" || entry.startsWith("step-")).sort();

/** One operator over a folder, with its snapshot in memory and a data plane that takes whatever is published. */
class World {
  readonly manifests: string;
  readonly #data: string;
  readonly #pods: CaseOptions["pods"];
  readonly #files = new Map<string, Uint8Array>();
  readonly #restarts: boolean;
  #uids = 0;
  #keys = 0;
  #reconciler: Reconciler | null = null;
  statuses: readonly ObjectStatus[] = [];
  faults: readonly LocatedFault[] = [];

  readonly #tenancies: Tenancy[];
  #steps = 0;

  constructor(folder: string, { pods, tenancy }: CaseOptions, restarts: boolean) {
    this.#tenancies = (tenancy ?? [{}]).map((settings) => readTenancy(settings, "default"));
    this.manifests = join(folder, "manifests");
    this.#data = join(folder, "data");
    this.#pods = pods;
    this.#restarts = restarts;
  }

  async step(): Promise<void> {
    const tenancy = this.#tenancies[Math.min(this.#steps, this.#tenancies.length - 1)];
    const isSwitched = tenancy !== this.#tenancies[Math.min(this.#steps - 1, this.#tenancies.length - 1)];
    // Another tenancy is another operator.
    if (this.#reconciler === null || this.#restarts || isSwitched)
      this.#reconciler = await this.#operator(tenancy);
    this.#steps += 1;
    await this.#reconciler.reconcile();
    if (this.#pods !== "unasked") await this.#reconciler.acknowledge(this.#answers());
  }

  get published() {
    return decodeSlots(this.#files)
      .filter((slot) => slot.published !== null)
      .sort((one, other) => (other.serial ?? 0) - (one.serial ?? 0))[0]?.published;
  }

  async #operator(tenancy: Tenancy | undefined): Promise<Reconciler> {
    const identities = await Identities.open(this.#data, () => `uid-${(this.#uids += 1)}`);
    const source = new FolderSource({ folder: this.manifests, dataFolder: this.#data, identities, now: () => NOW_MS });
    return new Reconciler({
      observe: async () => {
        const observation = await source.observe();
        this.faults = observation.faults;
        return observation;
      },
      createKeys: async (wanted) => {
        for (const key of wanted) {
          const path = keyFile(this.#data, key);
          await mkdir(dirname(path), { recursive: true });
          const prefix = key.form === "inference" ? "sk-svc-" : "sk-adm-svc-";
          await writeFile(path, `${prefix}${String((this.#keys += 1)).padStart(40, "0")}\n`);
        }
      },
      snapshots: {
        read: async () => new Map(this.#files),
        write: async (_bank, files) => {
          for (const { name, bytes } of files) this.#files.set(name, bytes);
        },
        empty: async (slot) => {
          for (const name of this.#files.keys()) if (name.startsWith(`${slot}-`)) this.#files.delete(name);
        },
      },
      ...(tenancy === undefined ? {} : { tenancy }),
      asksPods: this.#pods !== "unasked",
      writeStatuses: async (statuses) => {
        this.statuses = statuses;
      },
      now: () => NOW_MS,
    });
  }

  #answers(): PodReport[] {
    if (this.#pods === "none") return [];
    const routing = this.published?.routing;
    const objects = (routing?.objects ?? []).map((source) => ({ ...source, notes: [] }));
    const status = { hash: null, serial: routing?.serial ?? null, podUid: "pod", accepts: [1], rejected: null, objects };
    return [{ pod: "pod", ready: true, status }];
  }
}

async function run(name: string, options: CaseOptions, restarts: boolean): Promise<unknown> {
  const folder = await mkdtemp(join(work, "case-"));
  const world = new World(folder, options, restarts);
  const results: Record<string, unknown> = {};
  for (const step of await stepsOf(name)) {
    await rm(world.manifests, { recursive: true, force: true });
    await cp(join(cases, name, step), world.manifests, { recursive: true });
    await world.step();
    const published = world.published;
    results[step] = {
      statuses: Object.fromEntries(world.statuses.map(describeStatus)),
      files: world.faults.map(fileFaultLine),
      // The serial is the clock's doing.
      snapshot: published === null ? null : { ...published?.routing, serial: 0 },
      credentials: published?.credentials,
    };
  }
  return JSON.parse(JSON.stringify(results).replaceAll(`${world.manifests}/`, ""));
}

const describeStatus = (status: ObjectStatus) =>
  [
    `${status.object.kind} ${reference(status.object)}`,
    {
      observedGeneration: status.observedGeneration,
      ...status.facts,
      ...Object.fromEntries(
        status.conditions.map(({ type, status: value, reason, message }) => [type, `${value} ${reason}: ${message}`]),
      ),
    },
  ] as const;

async function expectGolden(name: string, options: CaseOptions, expected: string): Promise<void> {
  const result = await run(name, options, false);
  await expect(`${JSON.stringify(result, null, 2)}\n`).toMatchFileSnapshot(join(cases, name, expected));
  expect(await run(name, options, true), "a restarted operator comes to the same").toEqual(result);
  expect(await run(name, options, false), "the same folder gives the same bytes").toEqual(result);
}

describe("compile", async () => {
  test.for(names)("%s", async (name) => {
    await expectGolden(name, await optionsOf(name), "expected.json");
  });

  const both = await Promise.all(names.map(async (name) => ((await optionsOf(name)).both === true ? [name] : [])));
  test.for(both.flat())("%s under Namespaced", async (name) => {
    const options = { ...(await optionsOf(name)), tenancy: [{ tenancy: "Namespaced" }] };
    await expectGolden(name, options, "expected-namespaced.json");
  });

  test("every reason of Accepted and ResolvedRefs has a case", async () => {
    // A new case has its file after its first run.
    const texts = await Promise.all(names.map((name) => readFile(join(cases, name, "expected.json"), "utf8").catch(() => "")));
    const seen = new Set(
      texts.flatMap((text) => Array.from(text.matchAll(/"(?:Accepted|ResolvedRefs)": "\w+ (\w+):/g), (match) => match[1])),
    );
    // More than a snapshot holds does not lie in a folder of examples (operator/room.heavy.test.ts), and nobody may be kept
    // from reading its Secrets (watched-namespaces.test.ts).
    for (const reason of ["TooLarge", "SecretForbidden"]) seen.add(reason);
    expect(Object.keys({ ...REASONS.Accepted, ...REASONS.ResolvedRefs }).filter((reason) => !seen.has(reason))).toEqual([]);
  });
});
