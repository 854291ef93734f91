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

test.each([
  ["test/bench/main.ts", "npm run bench"],
  ["test/abuse/main.ts", "npm run abuse"],
  ["test/soak/main.ts", "npm run soak"],
  ["test/mutation/main.ts", "npm run mutate"],
  ["test/conformance/main.ts", "npm run conformance"],
])("%s with a flag that there is not does nothing, and says how it is called", (program, command) => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [program, "--help"], {
    encoding: "utf8",
    timeout: 30_000,
  });
  expect([status, stdout]).toEqual([2, ""]);
  expect(stderr).toMatch(/^Unknown option '--help'/);
  expect(stderr).toContain(`\nusage: ${command} -- `);
  expect(stderr).not.toContain("\n    at ");
});

test("an attack that there is not: nothing is started, and what was asked for is told", () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, ["test/abuse/main.ts", "no", "such"], {
    encoding: "utf8",
    timeout: 30_000,
  });
  expect([status, stdout]).toEqual([2, ""]);
  expect(stderr).toBe("no attack's name holds no such\nusage: npm run abuse -- [PART OF A NAME, ...]\n");
});
