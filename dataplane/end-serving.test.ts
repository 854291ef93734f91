import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { endServing, type EndingParts } from "./end-serving.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** Parts that record when they are asked to end. `frozen`: those that never end. */
function partsOf(...frozen: string[]) {
  const steps: string[] = [];
  const error = vi.fn<(...words: unknown[]) => void>();
  const step = (name: string) => (): Promise<unknown> => {
    steps.push(name);
    return frozen.includes(name) ? new Promise(() => undefined) : Promise.resolve();
  };
  const parts: EndingParts = {
    log: { info: () => undefined, error },
    drain: async () => step("drain")().then(() => true),
    holds: { idle: step("idle") },
    loader: { stop: step("loader") },
    helpers: [{ stop: step("helper") }],
    dispatchers: [{ destroy: step("dispatcher") }],
    pools: [{ close: step("pool") }],
    records: { stop: step("records") },
    sender: { stop: step("sender") },
    sync: { stop: step("sync") },
    money: { stop: step("money"), tellLast: step("told") },
    stores: { close: step("stores") },
    stopTelemetry: step("telemetry"),
  };
  return { parts, steps, error };
}

async function endedIn(parts: EndingParts): Promise<number> {
  const begun = Date.now();
  let ended = 0;
  const ending = endServing(parts).then(() => (ended = Date.now()));
  await vi.advanceTimersByTimeAsync(60_000);
  await ending;
  return ended - begun;
}

const inOrder = ["drain", "idle", "loader", "helper", "dispatcher", "pool", "records"];

test("requests end first, and stores last", async () => {
  const { parts, steps } = partsOf();
  expect(await endedIn(parts)).toBe(0);
  expect(steps).toEqual([...inOrder, "sender", "sync", "money", "told", "stores", "telemetry"]);
});

test("the last charges are moved while copying waits for a frozen Postgres", async () => {
  const { parts, steps } = partsOf("sync");
  expect(await endedIn(parts)).toBe(30_000);
  expect(steps).toContain("money");
});

test("they are waited for when copying has failed, which is told", async () => {
  const { parts, steps, error } = partsOf("money");
  const failing = { ...parts, sync: { stop: () => Promise.reject(new Error("refused")) } };
  expect(await endedIn(failing)).toBe(30_000);
  expect(steps.slice(-2)).toEqual(["stores", "telemetry"]);
  const fine = partsOf();
  await endedIn({ ...fine.parts, sync: failing.sync });
  expect([error.mock.calls.length, fine.error.mock.calls.length]).toEqual([0, 1]);
});

test.each(["drain", "holds", "loader", "helper", "dispatcher", "pool", "records"])(
  "what fails of the %s keeps no charge from being moved",
  async (name) => {
    const { parts, steps, error } = partsOf();
    const fails = () => Promise.reject(new Error("refused"));
    const failing = {
      drain: { drain: fails },
      holds: { holds: { idle: fails } },
      loader: { loader: { stop: fails } },
      helper: { helpers: [{ stop: fails }] },
      dispatcher: { dispatchers: [{ destroy: fails }] },
      pool: { pools: [{ close: fails }] },
      records: { records: { stop: fails } },
    }[name];
    await endedIn({ ...parts, ...failing });
    expect(steps.slice(-6)).toEqual(["sender", "sync", "money", "told", "stores", "telemetry"]);
    expect(error).toHaveBeenCalledTimes(1);
  },
);

test("what copying has changed by its end is told after it, also when moving the charges failed", async () => {
  const { parts, steps } = partsOf();
  const copied = () => new Promise((done) => setTimeout(() => done(steps.push("copied")), 2_000));
  const money = { ...parts.money, stop: () => Promise.reject(new Error("refused")) };
  await endedIn({ ...parts, sync: { stop: copied }, money });
  expect(steps.slice(-4)).toEqual(["copied", "told", "stores", "telemetry"]);
});

test("a receiver of a notification that answers late is waited for beside the last charges, which do not wait for it", async () => {
  const { parts, steps } = partsOf();
  const told = () => new Promise((done) => setTimeout(() => done(steps.push("answered")), 14_000));
  expect(await endedIn({ ...parts, sender: { stop: told } })).toBe(14_000);
  expect(steps.slice(-6)).toEqual(["sync", "money", "told", "answered", "stores", "telemetry"]);
});

test("stores that answer nothing keep the end for no longer than its bounds", async () => {
  const { parts } = partsOf("helper", "sync", "money", "stores", "telemetry");
  expect(await endedIn(parts)).toBe(40_000);
});
