import type { CommonQueryMethods } from "slonik";
import { expect, test, vi } from "vitest";
import { LimitWaits } from "./limit-waits.ts";

/** A store in which the limits of every organization have this epoch. */
function storeOf(epoch: number) {
  const store = {
    any: vi.fn(async () => [{ id: "org_a", epoch }]),
    query: vi.fn(async () => undefined),
  };
  return { ...store, db: store as unknown as CommonQueryMethods };
}

const wait = { batchId: "batch_a", organizationId: "org_a", keyEpoch: 3, until: 30_000 };

test("items that wait for longer are woken although another of their batch waited for a moment only", async () => {
  const waits = new LimitWaits();
  waits.add(wait);
  waits.add({ ...wait, until: 1_000 });
  expect(await waits.wake(storeOf(3).db, 2_000)).toEqual([]);
  expect(await waits.wake(storeOf(4).db, 3_000)).toEqual(["batch_a"]);
  const { any, db } = storeOf(5);
  expect(await waits.wake(db, 4_000)).toEqual([]);
  expect(any).not.toHaveBeenCalled();
});

test("what looked again by itself is asked about no longer, and what could not be woken is tried again", async () => {
  const waits = new LimitWaits();
  waits.add(wait);
  const away = storeOf(4);
  away.query.mockRejectedValueOnce(new Error("away"));
  await expect(waits.wake(away.db, 1_000)).rejects.toThrow("away");
  expect(await waits.wake(away.db, 2_000)).toEqual(["batch_a"]);
  waits.add(wait);
  const { any, db } = storeOf(4);
  expect(await waits.wake(db, 30_000)).toEqual([]);
  expect(any).not.toHaveBeenCalled();
});
