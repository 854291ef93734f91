import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { FakeIssuer } from "../../test/fakes/issuer.ts";
import { sampleOrganization, sampleRouting, sampleSnapshot } from "../../test/fakes/sample-snapshot.ts";
import { SnapshotDirectory } from "../../test/fakes/snapshot-directory.ts";
import { systemClock } from "../lib/clock.ts";
import { TokenPeople } from "./people.ts";

const MiB = 1024 * 1024;

test("what is declared for many audiences is not held once for each", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const used = () => {
    collect();
    return process.memoryUsage().heapUsed;
  };
  const issuer = new FakeIssuer("https://login.test", Date.now);
  const identity = {
    issuer: issuer.url,
    audiences: Array.from({ length: 16 }, (_, n) => `audience-${n}`),
    jwksUrl: null,
    allowCidrs: [],
    allowPorts: [],
    rules: [{ claims: { groups: "x".repeat(4 * MiB) }, role: "member" as const, project: "default" }],
  };
  const declared = (serial: number) =>
    sampleSnapshot(sampleRouting(serial, { organizations: [sampleOrganization("org_a", { identity })] }));
  let snapshot = declared(1);
  const people = new TokenPeople({
    snapshot: () => snapshot,
    directory: new SnapshotDirectory(() => snapshot),
    fetchJson: issuer.fetchJson,
    clock: systemClock,
  });
  const before = used();
  for (const serial of [2, 3]) {
    await people.refresh();
    snapshot = declared(serial);
  }
  await people.refresh();
  expect(used() - before).toBeLessThan(16 * MiB);
});
