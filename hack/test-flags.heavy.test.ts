import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";

test("`npm test` with a flag that there is not runs nothing, and says how it is called", () => {
  for (const flag of ["--help", "--al", "-h"]) {
    const { status, stdout, stderr } = spawnSync(process.execPath, ["hack/test.ts", flag], {
      encoding: "utf8",
      timeout: 10_000,
    });
    expect([flag, status, stdout]).toEqual([flag, 2, ""]);
    expect(stderr).toContain(`there is no ${flag}\nusage: npm test -- [`);
  }
});
