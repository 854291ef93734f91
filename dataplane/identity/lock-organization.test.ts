import type { DatabasePool } from "slonik";
import { afterEach, expect, test, vi } from "vitest";
import { refusedFor } from "../../test/fakes/refused-requests.ts";
import { changeOrganization } from "./lock-organization.ts";

afterEach(() => void vi.restoreAllMocks());

test("changes beyond those that may wait are refused and counted, and so are those that wait for too long", async () => {
  const before = await refusedFor("changes");
  const timeout = new AbortController();
  vi.spyOn(AbortSignal, "timeout").mockReturnValue(timeout.signal);
  const pool = { transaction: () => new Promise(() => {}) } as unknown as DatabasePool;
  const change = (id: string) => changeOrganization(pool, id, async () => null);
  void change("org_1");
  const waiting = Array.from({ length: 1_000 }, () => change("org_1"));
  await expect(change("org_1")).rejects.toMatchObject({ code: "rate_limited", retryAfterSeconds: 1 });
  expect((await refusedFor("changes")) - before).toBe(1);
  timeout.abort();
  const ends = await Promise.allSettled(waiting);
  expect(new Set(ends.map((end) => end.status === "rejected" && end.reason.code))).toEqual(
    new Set(["unavailable"]),
  );
  expect((await refusedFor("changes")) - before).toBe(1_001);
});
