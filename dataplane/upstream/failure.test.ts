import { describe, expect, test } from "vitest";
import { ownSecrets } from "../dialects/own-secrets.ts";
import {
  type AttemptFailure,
  failureOfCall,
  failureOfErrorBody,
  failureOfStatus,
  NoAnswer,
  wordOf,
} from "./failure.ts";
import type { CallFault } from "./send.ts";

const own = { secrets: [], names: { upstreamModel: "theirs", model: "ours" } };
const now = Date.parse("2027-03-03T10:00:00Z");
const answered = (status: number, headers: Record<string, string> = {}) =>
  failureOfStatus({ status, headers }, Buffer.from("{}"), "messages", own, now);
const said = (error: object) =>
  failureOfErrorBody(Buffer.from(JSON.stringify({ type: "error", error })), () => own);
const verdict = ({ retry, unhealthy, answered, lasting }: AttemptFailure) =>
  [retry, unhealthy && "unhealthy", answered && "answered", lasting && "lasting"].filter(
    (word) => word !== false,
  );

describe("rule 1.14: what a status says of the upstream, and whether another one is asked", () => {
  test.each([
    [401, ["server_error", "unhealthy", "lasting"], "account"],
    [402, ["server_error", "unhealthy", "lasting"], "account"],
    [403, ["server_error", "answered", "lasting"], "account"],
    [404, ["server_error", "answered", "lasting"], "account"],
    [429, ["rate_limited", "answered"], "rate_limited"],
    [500, ["server_error", "unhealthy"], "server_error"],
    [503, ["server_error", "unhealthy"], "server_error"],
    [529, ["server_error", "unhealthy"], "server_error"],
    [499, [null, "answered"], "refused"],
    [400, [null, "answered"], "refused"],
    [302, [null, "answered"], "refused"],
    [300, [null, "answered"], "refused"],
  ])("%i", (status, means, word) => {
    expect(verdict(answered(status))).toEqual(means);
    expect(answered(status).status).toBe(String(status));
    expect(wordOf(String(status))).toBe(word);
  });

  test.each([
    { code: "model_not_found", message: "no such model" },
    { code: "invalid_api_key", message: "no" },
    { message: "API key not valid. Please pass a valid API key." },
    { type: "invalid_request_error", message: "Your credit balance is too low." },
  ])("a 400 about our account there, which may repeat a client's words, is as a 404: %j", (error) => {
    const body = Buffer.from(JSON.stringify({ error }));
    const failure = failureOfStatus({ status: 400, headers: {} }, body, "messages", own, now);
    expect(verdict(failure)).toEqual(verdict(answered(404)));
    expect(failure).toMatchObject({ status: "400", label: "account", error: { code: "upstream_error" } });
  });

  test("also one that is told with status 200", () => {
    const failure = said({ type: "invalid_request_error", message: "Your credit balance is too low." });
    expect(verdict(failure)).toEqual(verdict(answered(404)));
    expect(failure).toMatchObject({ status: "400", label: "account", error: { code: "upstream_error" } });
  });

  test("words of ours are said as they are, and what went well is none", () => {
    expect(["connect", "299", "200"].map(wordOf)).toEqual(["connect", null, null]);
  });

  test("only who is busy is left alone for as long as it asks", () => {
    const wait = (status: number) => answered(status, { "retry-after": "7" }).retryAfterMs;
    expect([429, 500, 503, 499, 400, 302].map(wait)).toEqual([7000, 7000, 7000, null, null, null]);
    expect(answered(503).retryAfterMs).toBeNull();
  });

  test.each([
    ["alone", { "retry-after-ms": "12400" }, 13],
    ["before seconds, as the vendors' clients take it", { "retry-after-ms": "2000", "retry-after": "30" }, 2],
    ["up to a minute", { "retry-after-ms": "9".repeat(15) }, 60],
    ["from a second on", { "retry-after-ms": "0.5" }, 1],
    ["unless it is no number", { "retry-after-ms": "soon", "retry-after": "30" }, 30],
  ])("retry-after-ms counts %s", (_, headers, seconds) => {
    const { retryAfterMs, error } = answered(429, headers);
    expect([retryAfterMs, error.retryAfterSeconds]).toEqual([seconds * 1000, seconds]);
  });
});

test("that nothing came of an answer is another failure than one that broke off, or was none", () => {
  const nothingCame = {
    connect: true,
    stale: true,
    first_byte_timeout: true,
    idle: true,
    deadline: true,
    cut: false,
    garbage: false,
    too_large: false,
    shutdown: false,
    cancelled: false,
    exhausted: false,
    unsendable: false,
  } satisfies Record<CallFault, boolean>;
  const isNoAnswer = (fault: CallFault) => failureOfCall(fault, undefined, true).error instanceof NoAnswer;
  const faults = Object.keys(nothingCame) as CallFault[];
  expect(Object.fromEntries(faults.map((fault) => [fault, isNoAnswer(fault)]))).toEqual(nothingCame);
});

test.each([
  [{ type: "authentication_error" }, 401],
  [{ type: "x", code: "invalid_api_key" }, 401],
  [{ type: "billing_error" }, 402],
  [{ type: "x", code: "insufficient_quota" }, 402],
  [{ type: "permission_error" }, 403],
  [{ type: "not_found_error" }, 404],
  [{ type: "x", code: "model_not_found" }, 404],
])("an error that is told with status 200 is judged as the status that it means: %j", (error, status) => {
  const failure = said({ message: "no", ...error });
  expect(failure.status).toBe(String(status));
  expect(verdict(failure)).toEqual(verdict(answered(status)));
});

test("the upstream's own code is the reason, cut where it is long", () => {
  const reason = (error: object) => said({ message: "no", ...error }).reason;
  expect(reason({ type: "t", code: "c" })).toBe("c");
  expect(reason({ type: "t", code: "" })).toBe("t");
  expect(reason({ type: "t", code: 5 })).toBe("5");
  expect(reason({ type: "t", code: "c".repeat(65) })).toBe("c".repeat(64));
});

test("but for our own key there, with status 200 and with another", () => {
  const ours = { ...own, secrets: ownSecrets("http://x", "key.of.ours") };
  const body = Buffer.from(JSON.stringify({ error: { code: "key.of.ours" } }));
  const told = failureOfStatus({ status: 401, headers: {} }, body, "messages", ours, now);
  expect([failureOfErrorBody(body, () => ours).reason, told.reason]).toEqual(["[key]", "[key]"]);
});

describe("a call that failed before its answer", () => {
  test.each([
    ["connect", ["connect", "unhealthy"], "connect", "upstream_error"],
    ["cut", ["connect", "unhealthy"], "connect", "upstream_error"],
    ["stale", ["connect"], "connect", "upstream_error"],
    ["first_byte_timeout", ["first_byte_timeout", "unhealthy"], "timeout", "timeout"],
    ["garbage", ["connect"], "garbage", "upstream_error"],
    ["deadline", [null], "timeout", "timeout"],
    ["idle", [null], "timeout", "timeout"],
    ["shutdown", [null], "cancelled", "unavailable"],
    ["too_large", [null], "garbage", "upstream_error"],
    ["exhausted", [null], "exhausted", "unavailable"],
    ["unsendable", [null], "unsendable", "internal"],
    ["cancelled", [null], "cancelled", "internal"],
  ] as const)("%s", (fault, means, status, code) => {
    const failure = failureOfCall(fault, undefined, false);
    expect(verdict(failure)).toEqual(means);
    expect(failure).toMatchObject({ status, stale: fault === "stale", error: { code } });
  });

  test("its reason is the code of what broke, if that is one", () => {
    const reason = (fault: "connect" | "cut" | "garbage", code?: unknown) =>
      failureOfCall(fault, code === undefined ? undefined : { code }, false).reason;
    expect(reason("connect", "ECONNREFUSED")).toBe("ECONNREFUSED");
    expect(reason("connect")).toBe("connect_timeout");
    expect(reason("cut")).toBe("cut");
    expect(reason("connect", "no code")).toBe("connect");
    expect(reason("garbage", 5)).toBe("not_http");
  });

  test("what ended for our sake may be asked again in a second", () => {
    for (const fault of ["shutdown", "exhausted"] as const)
      expect(failureOfCall(fault, undefined, false).error.retryAfterSeconds).toBe(1);
  });
});
