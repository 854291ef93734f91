import { pino } from "pino";
import type { DatabasePool } from "slonik";
import { expect, test, vi } from "vitest";
import { systemClock } from "../lib/clock.ts";
import { metrics } from "../telemetry/metrics.ts";
import { requestRecord } from "../telemetry/request-record.ts";
import { newRequestSummary, type Try } from "../telemetry/request-summary.ts";
import { RequestRecorder } from "./recorder.ts";

const record = requestRecord(
  {
    id: "req_1",
    acceptedAt: 0,
    organizationId: "org_a",
    projectId: null,
    keyId: null,
    method: "GET",
    url: "/v1/models",
    dialect: null,
    firstByteMs: null,
    batchId: null,
    status: 200,
    durationMs: 1,
  },
  newRequestSummary(null),
);

test.each<[string, () => Promise<never>]>([
  ["is away", () => Promise.reject(new Error("away"))],
  ["is frozen", () => new Promise(() => undefined)],
])("the last records are told to be lost when Postgres %s", async (_, query) => {
  const lines: string[] = [];
  const log = pino({ base: null }, { write: (line: string) => void lines.push(line) });
  const pool = { query } as unknown as DatabasePool;
  const recorder = new RequestRecorder({ pool, clock: systemClock, log, retentionMs: 1 });
  recorder.add(record);
  await recorder.stop();
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { msg: "the last records are lost", records: 1 },
  ]);
});

/** A recorder for 80 records, and how many of those it is given it keeps. */
function fullRecorder(query: () => Promise<void>) {
  const pool = { query } as unknown as DatabasePool;
  const log = pino({ enabled: false });
  const recorder = new RequestRecorder({ pool, clock: systemClock, log, retentionMs: 1, maxWaiting: 80 });
  const full = async () => {
    const { values } = await metrics.recordsDropped.get();
    return values.find(({ labels }) => labels.reason === "full")?.value ?? 0;
  };
  const add = (organizationId: string | null, count: number) => {
    for (let n = 0; n < count; n += 1) recorder.add({ ...record, organizationId });
  };
  const kept = async (organizationId: string | null, count: number) => {
    const before = await full();
    add(organizationId, count);
    return count - ((await full()) - before);
  };
  return { recorder, add, kept };
}

test("an organization with as many records as may wait leaves room for those of others", async () => {
  const query = vi.fn(async () => undefined);
  const { recorder, kept } = fullRecorder(query);
  expect(await kept("org_loud", 200)).toBe(80);
  expect(await kept("org_quiet", 9)).toBe(9);
  expect(await kept("org_next", 20)).toBe(10);
  // There is no more room than a quarter beyond the usual.
  expect(await kept("org_late", 2)).toBe(1);
  await recorder.store();
  expect(query).toHaveBeenCalledOnce();
  expect(await kept("org_late", 90)).toBe(80);
});

test("an organization has few once its records are stored, though others never cease to wait", async () => {
  const { recorder, add, kept } = fullRecorder(
    vi
      .fn<() => Promise<void>>()
      .mockImplementationOnce(async () => add("org_loud", 5))
      .mockRejectedValue(new Error("away")),
  );
  add("org_quiet", 10);
  await expect(recorder.store()).rejects.toThrow("away");
  expect(await kept("org_loud", 80)).toBe(75);
  expect(await kept("org_quiet", 10)).toBe(10);
  expect(await kept("org_quiet", 10)).toBe(0);
});

test("an organization that goes on being refused by upstreams has a sample of that stored, and the rest is counted", async () => {
  vi.useFakeTimers({ toFake: ["performance"] });
  try {
    const pool = {} as DatabasePool;
    const log = pino({ enabled: false });
    const recorder = new RequestRecorder({
      pool,
      clock: systemClock,
      log,
      retentionMs: 1,
      maxWaiting: 50_000,
    });
    const call: Try = { upstream: "u", status: 400, fault: "refused", reason: null, words: null, ms: 1 };
    const dropped = async () => {
      const { values } = await metrics.recordsDropped.get();
      return values.find(({ labels }) => labels.reason === "rate")?.value ?? 0;
    };
    const kept = async (count: number) => {
      const before = await dropped();
      for (let n = 0; n < count; n += 1) recorder.add({ ...record, status: 400, tries: [call] });
      return count - ((await dropped()) - before);
    };
    expect(await kept(21_000)).toBe(20_000);
    await vi.advanceTimersByTimeAsync(1_000_000);
    expect(await kept(5_000)).toBe(2_000);
  } finally {
    vi.useRealTimers();
  }
});
