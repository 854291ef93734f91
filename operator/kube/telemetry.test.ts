import { expect, test } from "vitest";
import manifest from "../../package.json" with { type: "json" };
import { Telemetry } from "./telemetry.ts";

test("the metrics tell which operator runs", async () => {
  const { version } = manifest;
  const node = process.versions.node;
  expect(await new Telemetry().registry.metrics()).toContain(
    `gapura_operator_build_info{version="${version}",node="${node}"} 1\n`,
  );
});
