/** Rule 13.1: how long keys of an issuer are believed, and how often it is asked for them. */
import { setImmediate } from "node:timers/promises";
import { beforeEach, describe, expect, test } from "vitest";
import { FakeIssuer, signingKey } from "../../../test/fakes/issuer.ts";
import { IssuerKeys } from "./issuer-keys.ts";

const one = signingKey("EC", "one");
const two = signingKey("EC", "two");
const header = (kid: string | undefined) => ({ alg: "ES256", kid }) as const;

let now: number;
let issuer: FakeIssuer;
let keys: IssuerKeys;
const clock = { now: () => now };
beforeEach(() => {
  now = 1_800_000_000_000;
  told = [];
  issuer = new FakeIssuer("https://login.test", () => now);
  issuer.publish(one);
  const place = { issuer: issuer.url, jwksUrl: null, allowCidrs: [], allowPorts: [] };
  keys = new IssuerKeys(place, issuer.fetchJson, clock);
});
const looks = () => issuer.asked.filter((url) => url.endsWith("/keys")).length;
const find = async (kid: string | undefined) => {
  const found = await keys.keysFor(header(kid));
  return typeof found === "string" ? found : found.map((key) => key.kid);
};
/** What main.ts does every few seconds. */
const pass = async (ms: number) => {
  for (let gone = 0; gone < ms; gone += 2_000) {
    now += 2_000;
    await keys.refresh().catch((error: unknown) => told.push(error));
  }
};
let told: unknown[] = [];

test("a thousand tokens at the same time cause one look, and later ones none", async () => {
  await Promise.all(Array.from({ length: 1000 }, () => find("one")));
  await pass(38_000);
  expect(await find("one")).toEqual(["one"]);
  expect(issuer.asked).toEqual([
    "https://login.test/.well-known/openid-configuration",
    "https://login.test/keys",
  ]);
});

test("a new key is found at once; a flood of unknown ones causes one look in 30 s", async () => {
  await find("one");
  now += 1_000;
  issuer.publish(one, two);
  expect(await find("two")).toEqual(["two"]);
  expect(looks()).toBe(2);
  for (let at = 0; at < 29; at += 1) {
    now += 1_000;
    await Promise.all(Array.from({ length: 100 }, (_, n) => find(`unknown-${at}-${n}`)));
  }
  expect(looks()).toBe(2);
  now += 1_000;
  await Promise.all(Array.from({ length: 100 }, (_, n) => find(`unknown-${n}`)));
  expect(looks()).toBe(3);
});

test("whoever goes on sending tokens of a key that is gone keeps no new key from being found at once", async () => {
  await find("one");
  const before = looks();
  for (let second = 1; second <= 65; second += 1) {
    now += 1_000;
    expect(await find("gone")).toEqual([]);
  }
  expect(looks() - before, "at once, and every 30 s").toBe(3);
  issuer.publish(one, two);
  now += 1_000;
  expect(await find("two")).toEqual(["two"]);
});

test("a key that is published after its first token is found within 30 s, though nothing else is asked for", async () => {
  await find("one");
  now += 1_000;
  expect(await find("two")).toEqual([]);
  issuer.publish(one, two);
  now += 29_000;
  expect(await find("two")).toEqual([]);
  now += 1_000;
  expect(await find("two")).toEqual(["two"]);
});

test("ids that no key can have are not looked for, and made-up ones leave the next look to a new key", async () => {
  await find("one");
  now += 1_000;
  expect(await find("k".repeat(1025))).toEqual([]);
  expect(looks()).toBe(1);
  await Promise.all(Array.from({ length: 300 }, (_, n) => find(`unknown-${n}`)));
  expect(looks()).toBe(2);
  issuer.publish(one, two);
  now += 30_000;
  expect([await find("two"), looks()]).toEqual([["two"], 3]);
});

test("a new key is found at once, also while keys are being read as they were before it", async () => {
  const answered = Promise.withResolvers<void>();
  const place = { issuer: issuer.url, jwksUrl: `${issuer.url}/keys`, allowCidrs: [], allowPorts: [] };
  const slow = new IssuerKeys(
    place,
    async (...asked) => {
      const read = await issuer.fetchJson(...asked);
      if (looks() === 2) await answered.promise;
      return read;
    },
    clock,
  );
  expect(await slow.keysFor(header("one"))).toMatchObject([{ kid: "one" }]);
  now += 41_000;
  const reading = slow.refresh();
  await setImmediate();
  now += 1_000;
  issuer.publish(one, two);
  const found = slow.keysFor(header("two"));
  answered.resolve();
  expect(await found).toMatchObject([{ kid: "two" }]);
  await reading;
  expect(looks()).toBe(3);
});

test("a key that vanished is refused within a minute, with requests and without", async () => {
  const [key] = await keys.keysFor(header("one"));
  if (key === undefined || typeof key === "string") throw new Error("there is no key");
  expect(keys.stillHas(key)).toBe(true);
  issuer.publish(two);
  await pass(58_000);
  expect(keys.stillHas(key)).toBe(false);
  expect(await find("one")).toEqual([]);
});

test("a key that vanished is refused within a minute, though one look failed meanwhile", async () => {
  const [key] = await keys.keysFor(header("one"));
  if (key === undefined || typeof key === "string") throw new Error("there is no key");
  issuer.publish(two);
  await pass(38_000);
  issuer.isAway = true;
  await pass(2_000);
  issuer.isAway = false;
  for (let second = 40; second < 58; second += 2) {
    await pass(2_000);
    keys.stillHas(key);
  }
  expect(keys.stillHas(key)).toBe(false);
  expect(await find("one")).toEqual([]);
});

test("after a silence of ten minutes keys are read before a token is believed", async () => {
  await find("one");
  await pass(10 * 60_000);
  const before = looks();
  await pass(60 * 60_000);
  expect(looks(), "nobody sends tokens").toBe(before);
  issuer.publish(two);
  expect(await find("one")).toEqual([]);
  expect(looks()).toBe(before + 1);
});

describe("while the issuer is away", () => {
  test("its last keys serve for ten minutes, and nobody waits for it", async () => {
    const [key] = await keys.keysFor(header("one"));
    if (key === undefined || typeof key === "string") throw new Error("there is no key");
    issuer.isAway = true;
    for (let second = 0; second < 598; second += 2) {
      await pass(2_000);
      expect([second, keys.stillHas(key), await find("one")]).toEqual([second, true, ["one"]]);
    }
    await pass(4_000);
    expect(keys.stillHas(key)).toBe(false);
    expect(await find("one")).toBe("away");
    expect(looks(), "about every 40 s").toBeLessThan(20);
    expect(told.length, "for the log, about every minute").toBeGreaterThan(5);
    expect(told.length).toBeLessThanOrEqual(11);
    expect(String(told[0])).toContain("the keys of https://login.test cannot be read");
    issuer.isAway = false;
    await pass(6_000);
    expect(await find("one")).toEqual(["one"]);
  });

  test("a token of a key that it may have made meanwhile is not refused: nobody can know", async () => {
    await find("one");
    issuer.isAway = true;
    now += 1_000;
    for (let second = 0; second < 20; second += 1) {
      now += 1_000;
      expect([await find("two"), await find("one")]).toEqual(["away", ["one"]]);
    }
    expect(looks(), "one for an unknown key in 30 s").toBe(2);
    issuer.publish(one, two);
    issuer.isAway = false;
    await pass(30_000);
    expect(await find("two")).toEqual(["two"]);
    expect(await find("three")).toEqual([]);
  });

  test("from the first: it is asked every five seconds at most, however many tokens come", async () => {
    issuer.isAway = true;
    for (let second = 0; second < 20; second += 1) {
      now += 1_000;
      expect(await find("one")).toBe("away");
    }
    expect(issuer.asked.length).toBeLessThanOrEqual(4);
    issuer.isAway = false;
    now += 5_000;
    expect(await find("one")).toEqual(["one"]);
  });
});

describe("documents", () => {
  test.each([
    ["no object", { keys: "none" } as never],
    ["more than 100 keys", Array.from({ length: 101 }, () => one.jwk)],
  ])("that are no key sets count as an issuer that is away: %s", async (_, published) => {
    issuer.published = published;
    expect(await find("one")).toBe("away");
  });

  test("a discovery document of another issuer is not believed", async () => {
    issuer.discovery = { issuer: "https://login.test/" };
    expect(await find("one")).toBe("away");
    expect(looks()).toBe(0);
  });

  test("an address of keys that moved is looked up again", async () => {
    await find("one");
    issuer.path = "/moved";
    issuer.publish(two);
    await pass(90_000);
    expect(await find("two")).toEqual(["two"]);
  });

  test("keys that cost dearly to verify with are left out: large exponents, more than 8192 bits", async () => {
    const rsa = signingKey("RSA", "rsa").jwk;
    issuer.published = [
      { ...rsa, kid: "exponent", e: "A".repeat(342) },
      { ...rsa, kid: "modulus", n: "_".repeat(1368) },
      { ...rsa, kid: "usual", e: "AQAAAQ" },
    ];
    const found = async (kid: string) => await keys.keysFor({ alg: "RS256", kid });
    expect([await found("exponent"), await found("modulus")]).toEqual([[], []]);
    expect(await found("usual")).toMatchObject([{ kid: "usual" }]);
  });

  test("keys of the same id are all tried, and private parts are dropped", async () => {
    const again = signingKey("EC", "one");
    const secret = again.privateKey.export({ format: "jwk" });
    issuer.published = [{ ...one.jwk }, { ...secret, kid: "one" }];
    const found = await keys.keysFor(header("one"));
    if (typeof found === "string") throw new Error("there are no keys");
    expect(found.length).toBe(2);
    expect(JSON.stringify(found)).not.toContain(secret.d);
  });
});
