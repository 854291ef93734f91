/**
 * An on-call person gets a request id: each way in which an upstream can fail is told apart by `why`, while the client
 * learns nothing of hosts, keys and the upstream's words (rules 1.5, 14.1, 14.2).
 */
import type { Dispatcher } from "undici";
import { afterAll, beforeAll, expect, test } from "vitest";
import { callOf, routeTo, snapshotOf, upstreamOf } from "../../test/fakes/inference.ts";
import { startMailServer, type MailServer } from "../../test/fakes/mail-server.ts";
import { noTools } from "../../test/fakes/no-tools.ts";
import { text, type Step } from "../../test/fakes/upstream/script.ts";
import { startUpstream, withFaults, type FakeUpstream } from "../../test/fakes/upstream/server.ts";
import type { ApiError } from "../lib/api-error.ts";
import { sealing } from "../lib/seal.ts";
import { whyLines } from "../requests/why-command.ts";
import { requestRecord } from "../telemetry/request-record.ts";
import { requestLine } from "../telemetry/request-line.ts";
import { newUpstreamDispatcher } from "../upstream/dispatcher.ts";
import { Upstreams } from "../upstream/upstreams.ts";
import { createServe } from "./serve.ts";

const timeouts = { connectMs: 2_000, firstByteMs: 1_000, streamIdleMs: 1_000, requestMs: 6_000 };
const SECRET = "sk-ant-secret-of-the-account-0001";
const answer = text("one two three four five six seven eight nine ten ".repeat(60));
const failing = (status: number, message: string): Step => ({ error: { status, message } });

let fake: FakeUpstream;
let mail: MailServer;
let dispatcher: Dispatcher;
beforeAll(async () => {
  fake = await startUpstream();
  dispatcher = newUpstreamDispatcher();
  mail = await startMailServer();
});
afterAll(async () => {
  await dispatcher.destroy();
  mail.close();
  await fake.close();
});

interface Fault {
  readonly name: string;
  readonly step?: Step;
  /** Another address than the scripted upstream's. */
  readonly url?: () => string;
  readonly stream?: true;
  /** status, fault, reason of the last try. */
  readonly seen: readonly [number | null, string, string | RegExp];
}

const faults: readonly Fault[] = [
  {
    name: "expired key",
    step: failing(401, `invalid x-api-key ${SECRET}`),
    seen: [401, "account", "authentication_error"],
  },
  { name: "no credit", step: failing(402, "add credit"), seen: [402, "account", /./] },
  {
    name: "no credit, as a 400",
    step: failing(400, "Your credit balance is too low, says account 4711. Go to Plans & Billing."),
    seen: [400, "account", "invalid_request_error"],
  },
  {
    name: "a key that is none, as a 400",
    step: failing(400, `API key not valid. Please pass a valid API key. ${SECRET}`),
    seen: [400, "account", "invalid_request_error"],
  },
  { name: "bad request", step: failing(400, "no"), seen: [400, "refused", "invalid_request_error"] },
  { name: "unknown model", step: failing(404, "model: gone"), seen: [404, "account", "not_found_error"] },
  { name: "rate limit", step: failing(429, "slow down"), seen: [429, "rate_limited", "rate_limit_error"] },
  { name: "500", step: failing(500, "oops"), seen: [500, "server_error", "api_error"] },
  { name: "HTML with 200", step: withFaults(answer, { html: true }), seen: [200, "garbage", "html"] },
  { name: "nothing with 200", step: withFaults(answer, { empty: true }), seen: [200, "garbage", "empty"] },
  {
    name: "nothing in a stream",
    step: withFaults(answer, { empty: true }),
    stream: true,
    seen: [200, "cut", "empty"],
  },
  { name: "refused", url: () => "http://127.0.0.1:1", seen: [null, "connect", "ECONNREFUSED"] },
  {
    name: "unknown host",
    url: () => "http://nowhere.invalid",
    seen: [null, "connect", /^(ENOTFOUND|EAI_AGAIN)$/],
  },
  {
    name: "not TLS",
    url: () => `https://127.0.0.1:${mail.port}`,
    seen: [null, "connect", /SSL|EPROTO|TLS/],
  },
  {
    name: "not HTTP",
    url: () => `http://127.0.0.1:${mail.port}`,
    seen: [null, "garbage", /^(HPE_.+|not_http)$/],
  },
  {
    name: "reset",
    step: withFaults(answer, { reset: true }),
    seen: [null, "connect", /^(ECONNRESET|UND_ERR_SOCKET)$/],
  },
  {
    name: "silence",
    step: withFaults(answer, { hang: true }),
    seen: [null, "timeout", "first_byte_timeout"],
  },
  { name: "cut", step: withFaults(answer, { cutAtByte: 1500 }), seen: [200, "cut", "cut"] },
  { name: "stall", step: withFaults(answer, { stallAtByte: 1500 }), seen: [200, "timeout", "deadline"] },
];

async function fail({ name, step = answer, url = () => fake.url, stream }: Fault) {
  const model = `why ${name}`;
  fake.model(model, step);
  const route = routeTo([{ ...upstreamOf(url(), "messages", { model }), name: "behind-the-wall" }], {
    model,
    timeouts,
    retries: { attempts: 1, retryOn: ["connect"] },
  });
  const body = { model, max_tokens: 50, stream, messages: [{ role: "user", content: "hi" }] };
  const call = callOf("messages", snapshotOf([route], ["*"]), body);
  const serve = createServe(
    new Upstreams(dispatcher, { random: () => 0 }),
    sealing([{ id: "test", key: Buffer.alloc(32) }]),
    noTools,
  );
  const error = await serve(call).then(
    () => null,
    (thrown: unknown) => thrown as ApiError,
  );
  if (error === null) throw new Error(`${name} did not fail`);
  call.summary.errorCode = error.code;
  const end = {
    id: call.id,
    acceptedAt: call.acceptedAt,
    organizationId: "org_a",
    projectId: null,
    keyId: null,
    method: "POST",
    url: "/v1/messages",
    dialect: "messages",
    status: error.kind.status,
    firstByteMs: null,
    durationMs: 1,
    batchId: null,
  };
  const record = requestRecord(end, call.summary);
  const line = requestLine(
    { ...end, path: end.url, seconds: 1, organizationId: "org_a", keyId: undefined, clientId: undefined },
    call.summary,
  );
  return { error, record, line, lines: whyLines({ ...record, tries: [...record.tries] }, false) };
}

const outcomes = new Map<Fault, ReturnType<typeof fail>>();
/** Each fault is met once: some take seconds. */
function outcomeOf(fault: Fault) {
  const outcome = outcomes.get(fault) ?? fail(fault);
  outcomes.set(fault, outcome);
  return outcome;
}

test.each(faults)("$name", async (fault) => {
  const { error, record, line, lines } = await outcomeOf(fault);
  const [status, word, reason] = fault.seen;
  const said = typeof reason === "string" ? reason : expect.stringMatching(reason);
  expect(record.tries).toEqual([
    expect.objectContaining({ upstream: "behind-the-wall", status, fault: word, reason: said }),
  ]);
  expect(line).toMatchObject({ reason: said, tries: 1, upstream_status: status ?? undefined });
  expect(lines.at(-1)).toMatch(/^try 1: behind-the-wall, /);
  // The client learns neither where the upstream is, nor what it said, nor our key.
  expect(error.message).not.toMatch(
    /127\.0\.0\.1|nowhere|wall|slow down|oops|secret|add credit|x-api-key|10\.0\.0/,
  );
  expect(lines.join("\n")).not.toContain(SECRET);
});

test.each([
  ["at its first event", 0],
  ["in the middle", 4],
])("an error inside a stream, %s, is told in the upstream's words", async (where, event) => {
  const model = `in-band ${where}`;
  const errorAtEvent = { event, type: "api_error", message: `shard 7 is down, says ${SECRET}` };
  fake.model(model, withFaults(answer, { errorAtEvent }));
  const upstream = { ...upstreamOf(fake.url, "messages", { model }), name: "behind-the-wall" };
  const route = routeTo([upstream], { model, timeouts, retries: { attempts: 1, retryOn: ["connect"] } });
  const body = { model, max_tokens: 50, stream: true, messages: [{ role: "user", content: "hi" }] };
  const call = callOf("messages", snapshotOf([route], ["*"]), body);
  const keys = sealing([{ id: "test", key: Buffer.alloc(32) }]);
  await createServe(new Upstreams(dispatcher, { random: () => 0 }), keys, noTools)(call).catch(() => {});
  expect(call.summary.calls).toMatchObject([{ reason: "api_error", words: "shard 7 is down, says [key]" }]);
  expect(Buffer.concat(call.sink.pieces).toString()).not.toContain("shard 7");
});

test("of a 400 about our account no more is kept than what it is about: the rest may be the client's words", async () => {
  const last = await Promise.all(
    faults
      .filter(({ name }) => name.endsWith("as a 400"))
      .map(async (fault) => (await outcomeOf(fault)).lines.at(-1)),
  );
  expect(last).toEqual([
    expect.stringMatching(/: "credit balance, Billing"$/),
    expect.stringMatching(/: "valid API key"$/),
  ]);
});

test("no two of them look alike", async () => {
  const last = await Promise.all(faults.map(async (fault) => (await outcomeOf(fault)).lines.at(-1) ?? ""));
  // Durations are removed.
  expect(new Set(last.map((line) => line.replace(/[\d.]+ ms/, ""))).size).toBe(faults.length);
});
