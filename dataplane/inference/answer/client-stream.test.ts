import { pino } from "pino";
import { expect, test } from "vitest";
import { callOf, routeTo, snapshotOf, upstreamOf } from "../../../test/fakes/inference.ts";
import type { ApiError } from "../../lib/api-error.ts";
import { answerJob } from "./answer-job.ts";
import { ClientStream } from "./client-stream.ts";

test("an answer that could not be read is logged with its cause, charged, and ended in-band as our fault", async () => {
  const lines: string[] = [];
  const call = callOf("chat", snapshotOf([routeTo([upstreamOf("http://127.0.0.1:9", "chat")])]), {});
  const log = pino({ base: null }, { write: (line: string) => void lines.push(line) });
  const bill = await call.meter.open({} as Parameters<typeof call.meter.open>[0], 1n);
  const place = { pool: null, organizationId: "org_a", closed: call.sink.closed };
  const job = { ...answerJob(call, place, "public-model", bill, null), log };
  const stream = new ClientStream(job, "up", ({ code }: ApiError) => `error: ${code}`);
  stream.begin();
  await stream.misread(new TypeError("a bug"), { input_tokens: 3, output_tokens: 4 });
  expect(call.sink.text).toBe("error: internal");
  expect(call.sink.ended).toBe(true);
  expect(call.summary.errorCode).toBe("internal");
  expect(call.meter.settled).toMatchObject([{ status: "error", tokens: { input: 3, output: 4 } }]);
  expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([
    { level: 50, request_id: call.id, err: { type: "TypeError", message: "a bug" } },
  ]);
});
