/**
 * A gateway that breaks no rule is found to break none, and for each check one that breaks its rule is found by that check
 * alone.
 */
import { describe, expect, test } from "vitest";
import { dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { isWhole } from "../fakes/runs.ts";
import { startUpstream } from "../fakes/upstream/server.ts";
import { breaks } from "./breaks.ts";
import { Client } from "./client.ts";
import { discover } from "./discover.ts";
import { ADMIN_KEY, KEY, MODEL, startReference } from "./reference.ts";
import { conforms, run } from "./run.ts";
import { checks } from "./table.ts";

/** A gateway of its own for each test, which may break it while others run. */
async function startWorld() {
  const upstream = await startUpstream();
  const reference = await startReference(upstream.url);
  return {
    upstream,
    reference,
    client: (budgetTokens = 1_000_000) =>
      new Client({ url: reference.url, key: KEY, adminKey: ADMIN_KEY, budgetTokens }),
    [Symbol.asyncDispose]: async () => {
      await reference[Symbol.asyncDispose]();
      await upstream.close();
    },
  };
}
type World = Awaited<ReturnType<typeof startWorld>>;

/** `npm test -- --all` looks with every fault whether another check finds it too; else every `SAMPLED`th fault is so looked at. */
const SAMPLED = 12;

/** The checks that fail: of the one named, and where `others` those that are quick. */
async function failing(
  { client, upstream }: World,
  dialect: Dialect,
  name: string | null,
  others = true,
): Promise<string[]> {
  const results = await run({
    client: client(),
    targets: [{ dialect, model: MODEL, scripted: true }],
    checks: checks.filter((check) => name === null || check.name === name || (others && check.slow !== true)),
    adminKey: ADMIN_KEY,
    upstream: () => Promise.resolve(upstream.requests),
  });
  const told = results.filter(({ outcome }) => outcome === "failed");
  return told.map(({ check, faults }) => (name === null ? `${check.name}: ${faults[0]?.text}` : check.name));
}

test("what speaks the three dialects is found, with the scripted upstream behind it", async () => {
  await using world = await startWorld();
  const { targets, missing } = await discover(world.client(), null);
  expect(targets).toEqual(dialects.map((dialect) => ({ dialect, model: MODEL, scripted: true })));
  expect(missing).toEqual([]);
});

test("what is not there is said", async () => {
  await using world = await startWorld();
  const { targets, missing } = await discover(world.client(), ["other"], ["chat"]);
  expect(targets).toEqual([]);
  expect(missing).toEqual([expect.stringMatching(/^chat with other: status 404: .*model_not_found/)]);
});

describe.each(dialects)("%s", (dialect) => {
  test.concurrent("no rule is broken by who keeps them all", async () => {
    await using world = await startWorld();
    expect(await failing(world, dialect, null)).toEqual([]);
  });

  const own = checks.filter((check) => check.dialects?.includes(dialect) ?? true);
  const sampled = (index: number) => (index + dialects.indexOf(dialect)) % SAMPLED === 0;
  test.concurrent.each(own.map(({ name }, index) => [name, isWhole || sampled(index)] as const))(
    "%s finds the fault made for it; looked for by all: %s",
    async (name, others) => {
      const fault = breaks[name];
      expect(fault, "every check needs a fault in breaks.ts").toBeDefined();
      await using world = await startWorld();
      if (typeof fault === "function") world.reference.break = (draft) => fault(draft, dialect);
      else Object.assign(world.reference, fault);
      expect(await failing(world, dialect, name, others)).toEqual([name]);
    },
  );
});

test("no more is spent than allowed, and what is not tried is said", async () => {
  await using world = await startWorld();
  const client = world.client(2_000);
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
