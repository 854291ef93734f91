import { pino } from "pino";
import { expect, test } from "vitest";
import { sampleRouting, sampleSnapshot } from "../../test/fakes/sample-snapshot.ts";
import { modelNotFound } from "../config/find-route.ts";
import type { ClaimedItem } from "./claim.ts";
import { runItem, type RunServices } from "./run.ts";
import { ToolRoom } from "./tool-room.ts";

const item: ClaimedItem = {
  batchId: "msgbatch_1",
  number: 0,
  claim: "00000000-0000-4000-8000-000000000000",
  customId: '"a"',
  requestId: "req_1",
  acceptedAt: 0,
  model: "alpha",
  body: Buffer.from("{}"),
  bodyBytes: 2,
  faults: 0,
  ownFaults: 0,
  firstFaultAt: null,
  organizationId: "org_acme",
  projectId: "default",
  keyId: "apikey_1",
  createdAt: 0,
  expiresAt: 1_000_000,
  form: "messages",
  dialect: "messages",
  headers: "{}",
};

test("rule 4.5: an item whose organization has just left the snapshot, or is not back in it yet, waits", async () => {
  const services: RunServices = {
    // As serving does when it knows nobody of that name.
    serve: () => Promise.reject(modelNotFound("alpha")),
    meterFor: () => ({ open: () => Promise.reject(new Error("nobody is charged")) }),
    snapshot: () => sampleSnapshot(sampleRouting(1, { organizations: [] })),
    limitsOf: () => Promise.resolve({ limits: [], keyEpoch: 1 }),
    toolRoom: new ToolRoom({ admit: () => Promise.resolve(true) }),
    log: pino({ level: "silent" }),
    clock: { now: () => 0 },
    random: () => 0,
    succeededSince: () => false,
  };
  const end = await runItem(services, item, Buffer.from("{}"), { take: () => {} });
  expect(end).toEqual({ kind: "again", waitMs: 1_000, because: "stores" });
});
