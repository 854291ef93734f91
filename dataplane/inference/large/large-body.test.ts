import { expect, test } from "vitest";
import { refusedFor } from "../../../test/fakes/refused-requests.ts";
import { Cancellation } from "../../lib/cancellation.ts";
import { WorkNotDone, type WorkerPool } from "../../lib/worker-pool.ts";
import { LargeBody } from "./large-body.ts";

const bodyIn = (reason: WorkNotDone["reason"]) =>
  new LargeBody(
    { run: () => Promise.reject(new WorkNotDone(reason)) } as unknown as WorkerPool,
    "org_1",
    new Cancellation(),
    Buffer.from("{}"),
  );

test.each([
  { reason: "busy", code: "unavailable", counted: 1 },
  { reason: "busy_owner", code: "rate_limited", counted: 1 },
  { reason: "broken", code: "too_large", counted: 0 },
] as const)("a job that is not done ($reason) is $code, counted $counted times", async (one) => {
  const before = await refusedFor("large_bodies");
  await expect(bodyIn(one.reason).do("texts", null)).rejects.toMatchObject({ code: one.code });
  expect((await refusedFor("large_bodies")) - before).toBe(one.counted);
  // Whoever can do without is not refused.
  expect(await bodyIn(one.reason).doIfPossible("texts", null)).toBeNull();
  expect((await refusedFor("large_bodies")) - before).toBe(one.counted);
});
