/**
 * A gateway that breaks no rule is found to break none, and for each check one that breaks its rule is found by that check
 * alone.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { isWhole } from "../fakes/runs.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { breaks } from "./breaks.ts";
import { Client } from "./client.ts";
import { discover } from "./discover.ts";
import { ADMIN_KEY, KEY, MODEL, startReference, type Reference } from "./reference.ts";
import { conforms, run } from "./run.ts";
import { checks } from "./table.ts";

let upstream: FakeUpstream;
let reference: Reference;
beforeAll(async () => {
  upstream = await startUpstream();
  reference = await startReference(upstream.url);
});
afterAll(async () => {
  await reference?.[Symbol.asyncDispose]();
  await upstream?.close();
});

const newClient = (budgetTokens = 1_000_000) =>
  new Client({ url: reference.url, key: KEY, adminKey: ADMIN_KEY, budgetTokens });

/** `npm test -- --all` looks with every fault whether another check finds it too; else every `SAMPLED`th fault is so looked at. */
const SAMPLED = 12;

/** The checks that fail: of the one named, and where `others` those that are quick. */
async function failing(dialect: Dialect, name: string | null, others = true): Promise<string[]> {
  const results = await run({
    client: newClient(),
    targets: [{ dialect, model: MODEL, scripted: true }],
    checks: checks.filter((check) => name === null || check.name === name || (others && check.slow !== true)),
    adminKey: ADMIN_KEY,
    upstream: () => Promise.resolve(upstream.requests),
  });
  const told = results.filter(({ outcome }) => outcome === "failed");
  return told.map(({ check, faults }) => (name === null ? `${check.name}: ${faults[0]?.text}` : check.name));
}

test("what speaks the three dialects is found, with the scripted upstream behind it", async () => {
  const { targets, missing } = await discover(newClient(), null);
  expect(targets).toEqual(dialects.map((dialect) => ({ dialect, model: MODEL, scripted: true })));
  expect(missing).toEqual([]);
});

test("what is not there is said", async () => {
  const { targets, missing } = await discover(newClient(), ["other"], ["chat"]);
  expect(targets).toEqual([]);
  expect(missing).toEqual([expect.stringMatching(/^chat with other: status 404: .*model_not_found/)]);
});

describe.each(dialects)("%s", (dialect) => {
  test("no rule is broken by who keeps them all", { timeout: 60_000 }, async () => {
    expect(await failing(dialect, null)).toEqual([]);
  });

  const own = checks.filter((check) => check.dialects?.includes(dialect) ?? true);
  const sampled = (index: number) => (index + dialects.indexOf(dialect)) % SAMPLED === 0;
  test.each(own.map(({ name }, index) => [name, isWhole || sampled(index)] as const))(
    "%s finds the fault made for it; looked for by all: %s",
    async (name, others) => {
      const fault = breaks[name];
      expect(fault, "every check needs a fault in breaks.ts").toBeDefined();
      try {
        if (typeof fault === "function") reference.break = (draft) => fault(draft, dialect);
        else Object.assign(reference, fault);
        expect(await failing(dialect, name, others)).toEqual([name]);
      } finally {
        Object.assign(reference, { break: null, gather: false, cancels: true });
      }
    },
  );
});

test("no more is spent than allowed, and what is not tried is said", async () => {
  const client = newClient(2_000);
  const results = await run({
    client,
    targets: [{ dialect: "chat", model: MODEL, scripted: false }],
    checks,
  });
  expect(client.spent).toBeLessThanOrEqual(2_000);
  expect(client.requests).toBeGreaterThan(3);
  const left = results.filter(({ reason }) => reason.includes("--budget-tokens"));
  expect(left.length).toBeGreaterThan(3);
  expect(conforms(results)).toBe(true);
});
