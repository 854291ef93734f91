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
