import { expect, test } from "vitest";
import { metrics } from "../../telemetry/metrics.ts";
import { brokenWhole } from "./broken-answer.ts";

test("a whole answer that its upstream broke is counted by its fault, one whose client left is not", async () => {
  metrics.streamFaults.reset();
  for (const fault of ["cut", "garbage", "cancelled", "deadline", "shutdown"] as const)
    brokenWhole("chat", fault);
  const { values } = await metrics.streamFaults.get();
  expect(values.map(({ labels, value }) => [labels.kind, value])).toEqual([
    ["cut", 1],
    ["garbage", 1],
  ]);
});
