import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { FakeIssuer } from "../../test/fakes/issuer.ts";
import { sampleOrganization, sampleRouting, sampleSnapshot } from "../../test/fakes/sample-snapshot.ts";
import { SnapshotDirectory } from "../../test/fakes/snapshot-directory.ts";
import { systemClock } from "../lib/clock.ts";
import { TokenPeople } from "./people.ts";

const MiB = 1024 * 1024;
const issuer = new FakeIssuer("https://login.test", Date.now);
const acceptedBy = {
  issuer: issuer.url,
  audiences: [],
  jwksUrl: null,
  allowCidrs: [],
  allowPorts: [],
  rules: [{ claims: {}, role: "member" as const, project: "default" }],
};

test("what is declared for many audiences is not held once for each", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const used = () => {
    collect();
    return process.memoryUsage().heapUsed;
  };
  const identity = {
    ...acceptedBy,
    audiences: Array.from({ length: 16 }, (_, n) => `audience-${n}`),
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

test("a token for thousands of audiences costs little to refuse, however many organizations share its issuer", async () => {
  const organizations = Array.from({ length: 1000 }, (_, n) =>
    sampleOrganization(`org_${n}`, { identity: { ...acceptedBy, audiences: [`audience-${n}`] } }),
  );
  const snapshot = sampleSnapshot(sampleRouting(1, { organizations }));
  const people = new TokenPeople({
    snapshot: () => snapshot,
    directory: new SnapshotDirectory(() => snapshot),
    fetchJson: issuer.fetchJson,
    clock: systemClock,
  });
  // Nobody has signed them.
  const part = (content: object) => Buffer.from(JSON.stringify(content)).toString("base64url");
  const refuse = async (audiences: number): Promise<number> => {
    const aud = Array.from({ length: audiences }, (_, n) => n.toString(36));
    const startedAt = performance.now();
    await expect(people.find(`${part({ alg: "ES256" })}.${part({ iss: issuer.url, aud })}.`)).rejects.toThrow(
      "another audience",
    );
    return performance.now() - startedAt;
  };
  await refuse(1);
  const [first, second, third] = [await refuse(2200), await refuse(2200), await refuse(2200)];
  expect(Math.min(first, second, third), "milliseconds").toBeLessThan(50);
});
