/**
 * An upgrade to a release with another snapshot schema, and back, under load: programs of both releases stand side by
 * side, and no request fails.
 */
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { DataPlaneWorld } from "./data-plane-world.ts";

const access = inject("kube");
const namespace = "operator-upgrade";
const NEXT = "next-release.ts";

describe.skipIf(access === null)("two releases side by side", () => {
  let world: DataPlaneWorld;

  /** Schema version of each slot that holds anything. */
  const published = async (): Promise<number[]> => {
    const versions: number[] = [];
    for (const slot of ["a", "b"]) {
      const index = (await world.objects.secret(`gapura-${slot}-0`))?.[`${slot}-index.json`];
      if (index !== undefined) versions.push((JSON.parse(index) as { schemaVersion: number }).schemaVersion);
    }
    return versions;
  };
  const untilPublished = (...versions: number[]) =>
    world.objects.until(
      `schema version ${versions.join()} alone is published`,
      async () => JSON.stringify(await published()) === JSON.stringify(versions),
    );
  const untilProgrammed = () =>
    world.objects.untilCondition("ModelRoute", "m", "Programmed", /^True Programmed: \d\/\d pods$/);

  beforeAll(async () => {
    if (access === null) throw new Error("there is no API server");
    world = await DataPlaneWorld.open(access, namespace, "first words");
    await (await world.addPod("old-0")).untilReady();
    await untilProgrammed();
  });
  afterAll(() => world.close());

  test("an upgrade and a rollback of both programs: what is written suits every pod, and no request fails", async () => {
    const service = world.service();
    const [old] = world.operators;
    await service.load("m", 3, async () => {
      // The operator first. Its only pod is of the old release.
      world.startOperator("operator-next", { preload: NEXT });
      old?.child.kill("SIGTERM");
      expect(await old?.ended).toBe(0);
      await world.editToSay("second words");
      await untilProgrammed();
      expect(new Set(await published())).toEqual(new Set([1]));

      // Beside a pod of the next release the old one still decides.
      await (await world.addPod("next-0", { preload: NEXT })).untilReady();
      await world.editToSay("third words");
      await untilProgrammed();
      await untilPublished(1);

      // The last old pod goes: the new schema is written, and nothing else changes.
      await world.stopOldestPod();
      await untilPublished(2);
      await untilProgrammed();

      // Rollback: an old pod cannot read what is published, says so before it is ready, and gets what it can read.
      await (await world.addPod("old-1")).untilReady();
      await untilPublished(1);
      await world.stopOldestPod();
      await world.editToSay("fourth words");
      await untilProgrammed();
    });
    expect(service.failures).toEqual([]);
    expect(service.answered).toBeGreaterThan(50);
    for (const pod of world.pods) expect(await service.ask(pod, "m")).toContain("fourth words");
  }, 300_000);
});
