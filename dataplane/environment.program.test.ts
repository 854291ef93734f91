import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";
import { programEnvironment } from "../test/fakes/program-environment.ts";

const needed = { DATABASE_URL: "postgres://x", REDIS_URL: "redis://x", GAPURA_CONFIG_DIR: "/x" };

test("a data plane does not start with RETENTION_USAGE=34d, and says why", () => {
  const { status, stderr } = spawnSync(process.execPath, ["dataplane/main.ts"], {
    encoding: "utf8",
    env: { ...programEnvironment(), ...needed, RETENTION_USAGE: "34d" },
  });
  expect({ status, stderr }).toEqual({
    status: 1,
    stderr:
      "gapura: the environment is not complete:\n  RETENTION_USAGE: must be at least 35d, as younger usage may still " +
      "change; leave it out to keep usage for ever\n",
  });
});
