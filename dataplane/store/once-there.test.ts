import { expect, test } from "vitest";
import { isRefusal, onceThere } from "./once-there.ts";

const refused = (): Error => Object.assign(new Error('database "gapura" does not exist'), { code: "3D000" });
const away = (): Error => Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });

/** Fails so in turn, the last one for ever. @returns the milliseconds until it was given up, and what for. */
async function givenUp(faults: readonly (() => Error)[]): Promise<readonly [number, unknown]> {
  let [tries, at] = [0, 0];
  const ask = async (): Promise<never> => {
    const fault = faults[Math.min(tries, faults.length - 1)];
    tries += 1;
    throw fault?.() ?? new Error("no fault was given");
  };
  const time = {
    now: () => at,
    pause: async (ms: number) => {
      at += ms;
    },
  };
  const error = await onceThere(ask, () => true, { withinMs: 300_000 }, time).catch(
    (thrown: unknown) => thrown,
  );
  return [at, error];
}

test("one that lets nobody in is asked for 30 s, one that is away for as long as was said", async () => {
  const [refusedFor, refusal] = await givenUp([refused]);
  expect(isRefusal(refusal)).toBe(true);
  expect([refusedFor >= 30_000, refusedFor < 32_000]).toEqual([true, true]);
  const [awayFor] = await givenUp([away]);
  expect([awayFor >= 300_000, awayFor < 302_000]).toEqual([true, true]);
});

test("the time of refusals begins with the first one, and anew after it was away", async () => {
  const start = Array.from({ length: 50 }, () => away);
  const initializes = Array.from({ length: 20 }, () => refused);
  const [ms] = await givenUp([...start, ...initializes, away, refused]);
  // The pauses are 5.5 s for the first ten tries, then a second each: 71 tries before the last refusals.
  expect([ms >= 66_000 + 30_000, ms < 66_000 + 33_000]).toEqual([true, true]);
});

test.each([
  ["no such role", { code: "28000" }],
  ["a certificate of a stranger", { code: "SELF_SIGNED_CERT_IN_CHAIN" }],
  ["a certificate of another name", { code: "ERR_TLS_CERT_ALTNAME_INVALID" }],
  ["no password", { message: "SASL: SCRAM-SERVER-FIRST-MESSAGE: client password must be a string" }],
  ["no TLS", { message: "The server does not support SSL connections" }],
])("a refusal, also where a library wraps it: %s", (_, fault) => {
  const cause = Object.assign(new Error("why"), fault);
  expect(isRefusal(new Error("connecting failed", { cause }))).toBe(true);
});

test("one that is away refuses nobody", () => {
  expect(isRefusal(away())).toBe(false);
  expect(isRefusal(Object.assign(new Error("the database system is starting up"), { code: "57P03" }))).toBe(
    false,
  );
});
