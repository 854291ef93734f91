/** Rule 8.5: the snapshot never freezes. What does not fit is left out; everything else goes out at once. */
import { createHash } from "node:crypto";
import { computedMs } from "../test/fakes/computed.ts";
import { declaredObject } from "../test/fakes/declared.ts";
import {
  large,
  names,
  openWorld,
  organization,
  prices,
  routeOf,
  type World,
} from "../test/fakes/snapshot-room.ts";
import { beforeEach, describe, expect, test } from "vitest";
import { conditionOf } from "./plan/conditions.ts";

let world: World;
beforeEach(async () => {
  world = await openWorld();
});

describe("more than a snapshot holds", () => {
  test("of what hardly takes room when it is packed costs the namespace that grew, too: no data plane could unpack it", async () => {
    const headers = Object.fromEntries(
      Array.from({ length: 32 }, (_, index) => [`x-${index}`, "a".repeat(4000)]),
    );
    const many = Array.from({ length: 68 }, (_, index) => `evil${index}`);
    world.objects = [
      ...world.objects.filter(({ namespace }) => namespace === "good"),
      prices("evil", many),
      ...many.map((name) => routeOf("evil", name, 32, () => ({ headers }))),
    ];
    await world.reconciler.reconcile();
    expect(world.routes).toContain("good/mine");
    expect(world.refused.length).toBeGreaterThan(0);
    expect(world.refused.length).toBeLessThan(12);
    for (const line of world.refused) expect(line).toMatch(/^evil\/evil\d+ TooLarge$/);
  });

  test("costs the namespace that grew its own largest objects, and nobody else anything", async () => {
    const seven = names.slice(0, 7).map((name) => large("evil", name, 10));
    world.objects = [...world.objects, ...seven, large("evil", "small", 1)];
    await world.reconciler.reconcile();
    expect(world.routes).toContain("good/mine");
    expect(world.routes).toContain("evil/small");
    expect(world.refused.length).toBeGreaterThan(0);
    for (const line of world.refused) expect(line).toMatch(/^evil\/r\d TooLarge$/);
    // Everything else of it is served, as much as there is room for.
    expect(world.routes.length + world.refused.length).toBe(9);
    expect(world.routes.length).toBeGreaterThan(4);
    const told = world.statuses.find((status) => conditionOf(status, "Accepted")?.reason === "TooLarge");
    expect(told === undefined ? "" : conditionOf(told, "Accepted")?.message).toBe(
      'the snapshot of all namespaces is full, and this is the largest object of namespace "evil", which grew last; make it smaller, or delete what is not needed',
    );

    // The finding: nobody's changes were published any more, and a suspended organization went on.
    const before = world.routes;
    world.objects = world.objects.map((object) =>
      object.kind === "Organization" ? organization(2, { suspended: true }) : object,
    );
    const started = computedMs();
    await world.reconciler.reconcile();
    expect(computedMs() - started, "milliseconds").toBeLessThan(10_000);
    expect(world.served?.organizations).toMatchObject([{ id: "org_good_acme", suspended: true }]);
    expect(world.routes).toEqual(before);

    // An operator that is started anew comes to the same.
    world.reconciler = world.operator();
    await world.reconciler.reconcile();
    expect(world.routes).toEqual(before);

    // Room that is made is used.
    const first = before.find((name) => name.startsWith("evil/r"));
    world.objects = world.objects.filter(({ namespace, name }) => `${namespace}/${name}` !== first);
    await world.reconciler.reconcile();
    expect(world.routes).not.toEqual(before.filter((name) => name !== first));
  }, 120_000);

  test("leaves an object that grew beyond it as it was", async () => {
    const grown = names.slice(0, 5).map((name) => large("evil", name, 10));
    world.objects = [...world.objects, ...grown];
    await world.reconciler.reconcile();
    expect(world.refused).toEqual([]);
    const mine = large("good", "mine", 24);
    world.objects = world.objects.map((object) =>
      object.uid === mine.uid ? { ...mine, generation: 2 } : object,
    );
    await world.reconciler.reconcile();
    expect(world.refused).toEqual(["good/mine TooLarge"]);
    const entry = world.served?.routes.find(({ source }) => source.uid === mine.uid);
    expect([entry?.source.generation, entry?.upstreams.length]).toEqual([1, 2]);
  }, 60_000);

  /** Of 64 bytes that do not shrink, the same every time. */
  const digest = (seed: string, encoding: "hex" | "base64" | "base64url") =>
    createHash("sha512").update(seed).digest(encoding);
  /** A reference to a Secret whose names are as long as may be, and its place in `world.secrets`. */
  const longNamed = (namespace: string, seed: string, value: string) => {
    const name = `s${digest(seed, "hex")}${digest(`${seed} name`, "hex")}`.slice(0, 253);
    const key = `k${digest(`${seed} key`, "base64url")}${digest(`${seed} more`, "base64url")}`;
    world.secrets.set(`${namespace}/${name}`, { [key]: value });
    return { name, key };
  };
  const served = (kind: "routes" | "organizations", namespace: string) =>
    (world.served?.[kind] ?? []).filter(({ source }) => source.namespace === namespace).length;

  test("costs nobody else a route where short credentials have long names", async () => {
    const wants = (namespace: string, name: string, upstreams: number) =>
      routeOf(namespace, name, upstreams, (seed) => ({
        credentials: { secretKeyRef: longNamed(namespace, seed, "v") },
      }));
    const many = Array.from({ length: 180 }, (_, index) => `m${index}`);
    world.objects = [...world.objects, wants("good", "small", 1)];
    await world.reconciler.reconcile();
    world.objects = world.objects.map((object) =>
      object.kind === "PriceTable" && object.namespace === "evil"
        ? { ...prices("evil", [...names, ...many]), generation: 2 }
        : object,
    );
    world.objects = [...world.objects, ...many.map((name) => wants("evil", name, 32))];
    await world.reconciler.reconcile();
    expect(served("routes", "good")).toBe(2);
    expect(served("routes", "evil")).toBeGreaterThan(100);
    expect(world.refused.length).toBeGreaterThan(0);
    for (const line of world.refused) expect(line).toMatch(/^evil\/m\d+ TooLarge$/);
  }, 120_000);

  test("is told of the secrets that notifications are signed with", async () => {
    const notified = (namespace: string, name: string) =>
      declaredObject("Organization", namespace, name, {
        notifications: Array.from({ length: 10 }, (_, index) => ({
          url: `https://hooks.example/${index}`,
          secretRef: longNamed(
            namespace,
            `${namespace}/${name} ${index}`,
            `whsec_${digest(`${namespace}/${name} ${index} value`, "base64")}`,
          ),
        })),
      });
    world.objects = [...world.objects, notified("good", "told")];
    await world.reconciler.reconcile();
    const many = Array.from({ length: 450 }, (_, index) => notified("evil", `o${index}`));
    world.objects = [...world.objects, ...many];
    await world.reconciler.reconcile();
    expect([served("routes", "good"), served("organizations", "good")]).toEqual([1, 2]);
    expect(served("organizations", "evil")).toBeGreaterThan(200);
    expect(world.refused.length).toBeGreaterThan(0);
    for (const line of world.refused) expect(line).toMatch(/^evil\/o\d+ TooLarge$/);
  }, 120_000);
});
