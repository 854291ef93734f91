/** The configuration of a bench: a route of each mode, and as many others as it asks for. */
import type { Slot, Route, Routing } from "../../dataplane/config/schema.ts";
import {
  slotFiles,
  sampleKeys,
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleUpstream,
  sha256,
  writeFiles,
} from "../fakes/sample-snapshot.ts";
import { dialectOf, modes, type Mode } from "./payloads.ts";
import { waitFor } from "./wait-for.ts";

/** Of a key of the same organization that three limits hold for: two of credit and one of rate. */
export const LIMITED_KEY = `sk-svc-${"limited0".repeat(5)}`;
/** A hundred million credits: no bench runs out of them. */
const PLENTY_MICROS = "100000000000000";

/** An organization beside the bench's own. */
export interface Tenant {
  readonly id: string;
  readonly key: string;
}

/** Writes snapshots as the operator does, one slot after the other. */
export class Snapshots {
  readonly folder: string;
  readonly #upstreamPort: number;
  readonly #tenants: readonly Tenant[];
  #slot: Slot = "a";
  #serial = Date.now();

  constructor(folder: string, upstreamPort: number, tenants: readonly Tenant[] = []) {
    this.folder = folder;
    this.#upstreamPort = upstreamPort;
    this.#tenants = tenants;
  }

  /** @returns the serial. `edit` is the bench routes' display name: another one is another snapshot. */
  async write(others: number, edit: string): Promise<number> {
    const files = this.#files(others, edit);
    await writeFiles(this.folder, files);
    return this.#serial;
  }

  async publish(others: number, edit: string, opsPort: number): Promise<number> {
    const files = this.#files(others, edit);
    const started = performance.now();
    await writeFiles(this.folder, files);
    await waitFor(`serial ${this.#serial}`, async () =>
      (await metricsOf(opsPort)).includes(`serial="${this.#serial}"} 1`),
    );
    return performance.now() - started;
  }

  #files(others: number, edit: string): [string, Buffer][] {
    this.#serial = Math.max(this.#serial + 1, Date.now());
    const content = routing(this.#serial, this.#upstreamPort, others, edit, this.#tenants);
    const files = slotFiles(this.#slot, content);
    this.#slot = this.#slot === "a" ? "b" : "a";
    return files;
  }
}

function routing(
  serial: number,
  upstreamPort: number,
  others: number,
  edit: string,
  tenants: readonly Tenant[],
): Routing {
  const route = (model: string, mode: Mode): Route =>
    sampleRoute(model, {
      displayName: edit,
      upstreams: [
        sampleUpstream({
          dialect: dialectOf(mode),
          url: `http://127.0.0.1:${upstreamPort}/${mode}`,
          model,
        }),
      ],
    });
  const routes = [
    ...modes.map((mode) => route(mode, mode)),
    ...Array.from({ length: others }, (_, n) => route(`other/model-${n}`, "json")),
  ];
  const keyed = (name: string, key: string, project = "default") => ({
    name,
    sha256: sha256(key),
    hint: key.slice(0, 14),
    project,
  });
  const organization = (id: string, key: string) =>
    sampleOrganization(id, {
      grants: [{ name: "start", amountMicros: PLENTY_MICROS }],
      apiKeys: [keyed("bench", key)],
    });
  const credits = { amountMicros: PLENTY_MICROS, per: "month" } as const;
  const bench = organization("org_bench", sampleKeys.inference);
  const limited = {
    ...keyed("limited", LIMITED_KEY, "limited"),
    limits: { credits, requestsPerMinute: 1e9 },
  };
  return sampleRouting(serial, {
    routes,
    organizations: [
      {
        ...bench,
        projects: ["default", "limited"],
        projectLimits: { limited: { credits } },
        apiKeys: [...bench.apiKeys, limited],
      },
      organization("org_other", sampleKeys.narrow),
      ...tenants.map(({ id, key }) => organization(id, key)),
    ],
    objects: routes.map(({ source }) => source),
  });
}

export const metricsOf = async (opsPort: number) =>
  (await fetch(`http://127.0.0.1:${opsPort}/metrics`)).text();
