/** A server that counts what bodies take (rule 7.2), and answers each with an empty object unless told otherwise. */
import type { InferenceCall, Serve } from "../../dataplane/inference/call.ts";
import { inferenceRoutes } from "../../dataplane/http/routes/inference.ts";
import type { ByteBudget } from "../../dataplane/lib/byte-budget.ts";
import { startTestServer } from "./test-server.ts";

export const MiB = 1024 * 1024;
export const json = { "content-type": "application/json" };

export const startCounting = (bodies: ByteBudget, serve: Serve) =>
  startTestServer(
    [inferenceRoutes({ meter: { open: () => Promise.reject(new Error("not metered here")) }, serve })],
    { services: { bodies } },
  );

export function answerEmpty(call: InferenceCall): Promise<void> {
  call.sink.start(200, json);
  call.sink.end("{}");
  return Promise.resolve();
}

/** A body of so many bytes. */
export const bodyOfLength = (length: number) => Buffer.alloc(length, "a");
