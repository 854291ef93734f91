/** How much is asked of the stores at once when keys of many organizations change, and how long it is waited for. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { DatabasePool } from "slonik";
import { AccountLoader } from "./account-loader.ts";
import type { Shards } from "./shards.ts";

const ids = Array.from({ length: 1_201 }, (_, n) => `org_${n}`);
/** Accounts that Redis is being told of, the most of them, and all that it was told. */
let telling = 0;
let most = 0;
let told = 0;
const shards = {
  of: () => ({
    run: async () => {
      telling += 1;
      most = Math.max(most, telling);
      await Promise.resolve();
      telling -= 1;
      told += 1;
      return ["known"];
    },
  }),
} as unknown as Shards;
const loader = (any: (statement: { values: readonly unknown[] }) => Promise<unknown>) =>
  new AccountLoader({ any } as unknown as DatabasePool, shards, async () => undefined);

/** What the ledger says of those that are asked for. */
const accountsOf = (values: readonly unknown[]) =>
  (values.find((value) => Array.isArray(value)) as string[]).map((organizationId) => ({
    organizationId,
    balance: 0n,
    version: 1n,
    ledger: "l",
    keyEpoch: 1n,
  }));

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] }));
afterEach(() => void vi.useRealTimers());

test("of any number of organizations five hundred are read and told at once", async () => {
  const read: number[] = [];
  await loader(async ({ values }) => {
    const accounts = accountsOf(values);
    read.push(accounts.length);
    return accounts;
  }).refresh(ids);
  expect(read).toEqual([500, 500, 201]);
  expect([told, most]).toEqual([1_201, 500]);
});

test("accounts of a Redis that is away keep none of the others from being told", async () => {
  const heard: string[] = [];
  const oneAway = {
    of: (organizationId: string) => ({
      run: async () => {
        if (organizationId === "org_3") throw new Error("away");
        heard.push(organizationId);
        return ["known"];
      },
    }),
  } as unknown as Shards;
  const any = async ({ values }: { values: readonly unknown[] }) => accountsOf(values);
  const some = new AccountLoader({ any } as unknown as DatabasePool, oneAway, async () => undefined);
  await expect(some.refresh(ids)).rejects.toThrow("away");
  expect(heard).toEqual(ids.filter((id) => id !== "org_3"));
});

test("a Postgres that is frozen holds whoever changed a key for two seconds", async () => {
  const refreshed = loader(() => new Promise(() => undefined)).refresh(["org_1"]);
  const outcome = refreshed.then(
    () => "told",
    (error: unknown) => String(error),
  );
  await vi.advanceTimersByTimeAsync(2_000);
  expect(await outcome).toContain("did not answer");
});
