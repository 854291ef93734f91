import { setImmediate } from "node:timers/promises";
import type { DatabasePool } from "slonik";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { systemClock } from "../lib/clock.ts";
import { KeyDirectory } from "./directory.ts";

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] }));
afterEach(() => void vi.useRealTimers());

const frozen = () => new Promise<never>(() => undefined);
const pool = { any: frozen, maybeOne: frozen } as unknown as DatabasePool;

test.each<[string, (directory: KeyDirectory) => Promise<unknown>]>([
  ["a key", async (directory) => await directory.find("ab", 30_000)],
  ["a key that waits in line", (directory) => directory.findQueued("ab")],
  ["a key again", (directory) => directory.recheck("apikey_one")],
  ["the limits of a key", (directory) => directory.limitsOf("apikey_one", "proj_one")],
])("a Postgres that is frozen holds nobody who looks up %s for longer than two seconds", async (_, look) => {
  let over = false;
  const ended = look(new KeyDirectory({ pool, clock: systemClock })).then(
    () => expect.unreachable(),
    () => (over = true),
  );
  // It may be asked together with others of the same turn.
  for (let turn = 0; turn < 3; turn += 1) await setImmediate();
  await vi.advanceTimersByTimeAsync(1_999);
  expect(over).toBe(false);
  await vi.advanceTimersByTimeAsync(1);
  await ended;
});
