/** Rule 8.5 as far as it is quick to fill a snapshot; the rest stands in room.heavy.test.ts. */
import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { declaredObject } from "../test/fakes/declared.ts";
import { names, openWorld } from "../test/fakes/snapshot-room.ts";

test("more credentials than a snapshot holds cost the namespace that grew its own, and nobody else a route", async () => {
  const world = await openWorld();
  const value = (name: string, index: number) =>
    Array.from({ length: 90 }, (_, part) =>
      createHash("sha512").update(`${name} ${index} ${part}`).digest("base64"),
    )
      .join("")
      .slice(0, 8000);
  const wants = (namespace: string, name: string) =>
    declaredObject("ModelRoute", namespace, name, {
      limits: { contextTokens: 1000, maxOutputTokens: 100 },
      upstreams: Array.from({ length: 32 }, (_, index) => ({
        name: `u${index}`,
        dialect: "Messages",
        baseURL: "https://a.example",
        credentials: { secretKeyRef: { name, key: `k${index}` } },
      })),
    });
  for (const namespace of ["good", "evil"])
    for (const name of names)
      world.secrets.set(
        `${namespace}/${name}`,
        Object.fromEntries(
          Array.from({ length: 32 }, (_, index) => [`k${index}`, value(`${namespace}${name}`, index)]),
        ),
      );
  world.objects = [...world.objects, wants("good", "small")];
  await world.reconciler.reconcile();
  world.objects = [...world.objects, ...names.slice(0, 7).map((name) => wants("evil", name))];
  await world.reconciler.reconcile();
  expect(world.routes).toContain("good/small");
  expect(world.refused.length).toBeGreaterThan(0);
  for (const line of world.refused) expect(line).toMatch(/^evil\/r\d TooLarge$/);
});
