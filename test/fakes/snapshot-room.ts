/** An operator without a cluster whose snapshot is filled by namespace "evil" beside namespace "good" (rule 8.5). */
import { createHash } from "node:crypto";
import { conditionOf, type ObjectStatus } from "../../operator/plan/conditions.ts";
import type { Declared } from "../../operator/plan/objects.ts";
import { decodeSlots } from "../../operator/plan/shards.ts";
import { Reconciler } from "../../operator/reconcile.ts";
import { declaredObject } from "./declared.ts";

/** Text that does not shrink, the same every time: `bytes` of base64 in headers of 4,000. */
function noise(seed: string, bytes: number): Record<string, string> {
  const headers: Record<string, string> = {};
  for (let at = 0; at < bytes; at += 4000) {
    const parts = Array.from({ length: 47 }, (_, part) =>
      createHash("sha512").update(`${seed} ${at} ${part}`).digest("base64url"),
    );
    headers[`x-${at}`] = parts.join("").slice(0, 4000);
  }
  return headers;
}

/** A ModelRoute with so many upstreams, and what each holds beside its address; `seed`: its own. */
export const routeOf = (
  namespace: string,
  name: string,
  upstreams: number,
  holding: (seed: string) => object,
): Declared =>
  declaredObject("ModelRoute", namespace, name, {
    limits: { contextTokens: 1000, maxOutputTokens: 100 },
    upstreams: Array.from({ length: upstreams }, (_, index) => ({
      name: `u${index}`,
      dialect: "Messages",
      baseURL: "https://a.example",
      ...holding(`${namespace}/${name} ${index}`),
    })),
  });
/** Its upstreams have 32 headers of 4,000 characters: ten make more than a megabyte. */
export const large = (namespace: string, name: string, upstreams: number) =>
  routeOf(namespace, name, upstreams, (seed) => ({ headers: noise(seed, 32 * 4000 - 1) }));
export const prices = (namespace: string, models: readonly string[]) =>
  declaredObject("PriceTable", namespace, "default", {
    unit: "Credit",
    models: models.map((model) => ({ model, input: "1", output: "1" })),
  });
export const names = ["r1", "r2", "r3", "r4", "r5", "r6", "r7", "small", "mine"];
export const organization = (generation: number, spec: object): Declared => ({
  ...declaredObject("Organization", "good", "acme", spec),
  generation,
});

export class World {
  objects: Declared[] = [];
  secrets = new Map<string, Record<string, string>>();
  readonly files = new Map<string, Uint8Array>();
  statuses: readonly ObjectStatus[] = [];
  reconciler = this.operator();

  operator(): Reconciler {
    return new Reconciler({
      observe: async () => ({ objects: this.objects, secrets: this.secrets }),
      createKeys: async () => {},
      snapshots: {
        read: async () => new Map(this.files),
        write: async (_bank, files) => {
          for (const { name, bytes } of files) this.files.set(name, bytes);
        },
        empty: async () => {},
      },
      asksPods: false,
      writeStatuses: async (statuses) => {
        this.statuses = statuses;
      },
      now: () => 1000,
    });
  }

  get served() {
    const [newest] = decodeSlots(this.files)
      .filter(({ published }) => published !== null)
      .sort((one, other) => (other.serial ?? 0) - (one.serial ?? 0));
    return newest?.published?.routing;
  }

  get routes(): string[] {
    return (this.served?.routes ?? []).map(({ source }) => `${source.namespace}/${source.name}`).sort();
  }

  /** Of each object that is not accepted. */
  get refused(): string[] {
    return this.statuses.flatMap((status) => {
      const accepted = conditionOf(status, "Accepted");
      const { namespace, name } = status.object;
      return accepted?.status === "False" ? [`${namespace}/${name} ${accepted.reason}`] : [];
    });
  }
}

/** Both namespaces have prices for all models, and the good one a route and an organization. */
export async function openWorld(): Promise<World> {
  const world = new World();
  world.objects = [
    prices("good", names),
    large("good", "mine", 2),
    organization(1, {}),
    prices("evil", names),
  ];
  await world.reconciler.reconcile();
  return world;
}
