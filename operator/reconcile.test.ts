import { beforeEach, describe, expect, test } from "vitest";
import { conditionOf, type ObjectStatus, type PodReport } from "./plan/conditions.ts";
import type { Declared } from "./plan/objects.ts";
import { decodeSlots } from "./plan/shards.ts";
import { Reconciler } from "./reconcile.ts";

/** A port of everything, held in memory; the pods take what a test lets them take. */
class World {
  objects: Declared[] = [];
  files = new Map<string, Uint8Array>();
  pods: PodReport[] = [];
  statuses: readonly ObjectStatus[] = [];
  writes = 0;
  full = false;
  now = 1000;
  reconciler = this.operator();

  operator(): Reconciler {
    return new Reconciler({
      observe: async () => ({ objects: this.objects, secrets: new Map() }),
      createKeys: async () => {},
      snapshots: {
        read: async () => new Map(this.files),
        write: async (_bank, files) => {
          if (this.full) throw new Error("no space left");
          this.writes += 1;
          for (const { name, bytes } of files) this.files.set(name, bytes);
        },
        empty: async (slot) => {
          for (const name of this.files.keys()) if (name.startsWith(`${slot}-`)) this.files.delete(name);
        },
      },
      asksPods: true,
      writeStatuses: async (statuses) => {
        this.statuses = statuses;
      },
      now: () => this.now,
    });
  }

  declare(unit: string): void {
    const generation = (this.objects[0]?.generation ?? 0) + 1;
    const object: Declared = {
      kind: "PriceTable",
      namespace: "default",
      name: "default",
      uid: "u",
      generation,
      creationTimestamp: null,
      createdAt: 0,
      spec: { unit, creditsPerUSD: String(generation) },
      faults: [],
    };
    this.objects = [object];
  }

  /** The pods adopt the newest complete serial. */
  take(...names: string[]): void {
    const [newest] = decodeSlots(this.files)
      .filter(({ published }) => published !== null)
      .sort((one, other) => (other.serial ?? 0) - (one.serial ?? 0));
    const objects = (newest?.published?.routing.objects ?? []).map((source) => ({ ...source, notes: [] }));
    const status = { hash: null, serial: newest?.serial ?? null, accepts: [1], rejected: null, objects };
    const taken = names.map((pod) => ({ pod, ready: true, status: { ...status, podUid: pod } }));
    this.pods = [...this.pods.filter(({ pod }) => !names.includes(pod)), ...taken];
  }

  get serials(): Record<string, number> {
    const held = decodeSlots(this.files).filter(({ serial }) => serial !== null);
    return Object.fromEntries(held.map(({ slot, serial }) => [slot, serial ?? 0]));
  }

  get programmed(): string {
    const [status] = this.statuses;
    const condition = status === undefined ? undefined : conditionOf(status, "Programmed");
    return `${condition?.status} ${condition?.message}`;
  }
}

const organization = (generation: number, spec: object): Declared => ({
  kind: "Organization",
  namespace: "default",
  name: "acme",
  uid: "u-acme",
  generation,
  creationTimestamp: null,
  createdAt: 0,
  spec,
  faults: [],
});

let world: World;
beforeEach(async () => {
  world = new World();
  world.declare("USD");
  await world.reconciler.reconcile();
});

describe("two slots", () => {
  test("a new serial goes into the other slot, and the old one is emptied once all pods have it", async () => {
    expect(world.serials).toEqual({ a: 1000 });
    world.take("p1", "p2");
    await world.reconciler.acknowledge(world.pods);
    world.declare("USD");
    world.now = 2000;
    await world.reconciler.reconcile();
    expect(world.serials).toEqual({ a: 1000, b: 2000 });
    world.take("p1");
    await world.reconciler.acknowledge(world.pods);
    expect([world.serials, world.programmed]).toEqual([{ a: 1000, b: 2000 }, "False 1/2 pods"]);
    world.take("p2");
    await world.reconciler.acknowledge(world.pods);
    expect([world.serials, world.programmed]).toEqual([{ b: 2000 }, "True 2/2 pods"]);
  });

  test("while a serial is pending a newer one overwrites it, never the one that all pods hold", async () => {
    world.take("p1");
    await world.reconciler.acknowledge(world.pods);
    for (const now of [2000, 3000, 4000]) {
      world.declare("USD");
      world.now = now;
      await world.reconciler.reconcile();
      expect(world.serials).toEqual({ a: 1000, b: now });
    }
  });

  test("a restarted operator publishes nothing when nothing changed, and knows the serial", async () => {
    world.reconciler = world.operator();
    await world.reconciler.reconcile();
    expect([world.writes, world.reconciler.serial]).toEqual([1, 1000]);
  });

  test("rule 6.6: a snapshot that was deleted or overwritten is put right at the next verification", async () => {
    world.files.delete("a-0.gz");
    await world.reconciler.reconcile();
    expect(world.writes).toBe(1);
    await world.reconciler.reconcile({ verify: true });
    expect(world.writes).toBe(2);
    expect(world.serials).toEqual({ a: 1000, b: 1001 });
  });

  test("a serial of a release to come is overwritten only after ours is complete beside it", async () => {
    const index = JSON.parse(Buffer.from(world.files.get("a-index.json")!).toString()) as object;
    world.files.set("a-index.json", Buffer.from(JSON.stringify({ ...index, schemaVersion: 99 })));
    world.reconciler = world.operator();
    await world.reconciler.reconcile();
    expect(world.serials).toEqual({ a: 1000, b: 1001 });
  });
});

describe("the last good entry of a broken object", () => {
  const newest = () =>
    decodeSlots(world.files)
      .filter((slot) => slot.published !== null)
      .toSorted((one, other) => (other.serial ?? 0) - (one.serial ?? 0))[0];
  const published = () => newest()?.published;
  const served = () => published()?.routing.objects.map(({ generation }) => generation);

  beforeEach(async () => {
    const table = world.objects;
    world.objects = [...table, organization(1, { id: "org_acme" })];
    await world.reconciler.reconcile();
    world.objects = [...table, organization(2, { id: "org_other" })];
    await world.reconciler.reconcile();
    expect(published()?.routing.organizations.map(({ id }) => id)).toEqual(["org_acme"]);
  });

  test("outlives the deletion of everything that was published", async () => {
    world.files.clear();
    await world.reconciler.reconcile({ verify: true });
    expect(published()?.routing.organizations.map(({ id }) => id)).toEqual(["org_acme"]);
    expect(served()).toEqual([1]);
  });

  test("is not lost to an older slot when the newer one is deleted", async () => {
    const prefix = `${newest()?.slot}-`;
    for (const name of world.files.keys()) if (name.startsWith(prefix)) world.files.delete(name);
    await world.reconciler.reconcile({ verify: true });
    expect(published()?.routing.organizations.map(({ id }) => id)).toEqual(["org_acme"]);
  });
});

describe("statuses", () => {
  test("rule 6.1: with no pod Programmed is not True", async () => {
    await world.reconciler.acknowledge(world.pods);
    expect(world.programmed).toBe("False 0/0 pods");
    expect(world.reconciler.pending).toBe(true);
  });

  test("rule 6.2: an object that every pod holds stays Programmed while another one is on its way", async () => {
    world.take("p1");
    await world.reconciler.acknowledge(world.pods);
    const [first] = world.objects;
    world.objects = [...world.objects, { ...first!, name: "second", uid: "u2" }];
    await world.reconciler.reconcile();
    expect(world.statuses.map((status) => conditionOf(status, "Programmed")?.status)).toEqual([
      "True",
      "False",
    ]);
    expect(world.reconciler.pending).toBe(true);
  });

  test("an Organization that a pod copies later than it adopts its serial is pending until it is there, or refused", async () => {
    world.objects = [organization(1, {})];
    await world.reconciler.reconcile();
    world.take("p1");
    const [pod] = world.pods;
    const answer = async (more: object): Promise<boolean> => {
      await world.reconciler.acknowledge([{ ...pod!, status: { ...pod!.status!, ...more } }]);
      return world.reconciler.pending;
    };
    expect(await answer({ objects: [] })).toBe(true);
    expect(world.programmed).toBe("False 0/1 pods");
    const refused = pod!.status!.objects.map(({ notes: _, ...source }) => ({
      ...source,
      reason: "NotStored",
    }));
    expect(await answer({ objects: [], refused })).toBe(false);
    expect(await answer({})).toBe(false);
    expect(world.programmed).toBe("True 1/1 pods");
  });

  test("a snapshot that cannot be written is said and tried again", async () => {
    world.take("p1");
    world.declare("USD");
    world.full = true;
    await expect(world.reconciler.reconcile()).rejects.toThrow("no space left");
    expect(world.programmed).toBe("False the snapshot could not be written: no space left");
    world.full = false;
    await world.reconciler.reconcile();
    world.take("p1");
    await world.reconciler.acknowledge(world.pods);
    expect(world.programmed).toBe("True 1/1 pods");
  });
});
