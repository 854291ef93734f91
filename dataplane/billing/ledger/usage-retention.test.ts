/** How often a data plane looks for a month to close (rule 12.5). */
import { pino } from "pino";
import type { DatabasePool } from "slonik";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { DAY_MS, HOUR_MS } from "../../lib/clock.ts";
import { UsageRetention, type RetentionStep } from "./usage-retention.ts";

const MINUTE_MS = 60_000;

let steps: RetentionStep[];
let taken: number;
let retention: UsageRetention;
beforeEach(() => {
  vi.useFakeTimers();
  [steps, taken] = [[], 0];
  const oneFirst = async () => {
    taken += 1;
    return steps.shift() ?? "done";
  };
  retention = new UsageRetention({
    pool: { oneFirst } as unknown as DatabasePool,
    clock: { now: () => Date.now() },
    log: pino({ level: "silent" }),
    retentionMs: 400 * DAY_MS,
    dropRows: false,
  });
});
afterEach(async () => {
  await retention.stop();
  vi.useRealTimers();
});

test("within a minute of its start, all steps at once, and then hourly", async () => {
  steps = ["summed", "checked", "closed", "moved"];
  retention.start();
  await vi.advanceTimersByTimeAsync(MINUTE_MS);
  expect(taken).toBe(5);
  await vi.advanceTimersByTimeAsync(HOUR_MS - 2 * MINUTE_MS);
  expect(taken).toBe(5);
  await vi.advanceTimersByTimeAsync(2 * MINUTE_MS);
  expect(taken).toBe(6);
});

test("again within a minute, while another data plane is at it", async () => {
  steps = ["busy", "busy"];
  retention.start();
  for (const looks of [2, 3, 3]) {
    await vi.advanceTimersByTimeAsync(MINUTE_MS);
    expect(taken).toBe(looks);
  }
});
