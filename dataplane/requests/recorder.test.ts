import { pino } from "pino";
import type { DatabasePool } from "slonik";
import { expect, test } from "vitest";
import { systemClock } from "../lib/clock.ts";
import { requestRecord } from "../telemetry/request-record.ts";
import { newRequestSummary } from "../telemetry/request-summary.ts";
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
