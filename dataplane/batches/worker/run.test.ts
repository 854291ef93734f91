import { pino } from "pino";
import { describe, expect, test } from "vitest";
import {
  RecordingMeter,
  routeTo,
  snapshotOf,
  toolPolicy,
  upstreamOf,
} from "../../../test/fakes/inference.ts";
import { serveOneUpstream } from "../../../test/fakes/one-upstream.ts";
import { longestHoldMs } from "../../../test/fakes/large/watch-loop.ts";
import { sampleRouting, sampleSnapshot } from "../../../test/fakes/sample-snapshot.ts";
import { toolCall } from "../../../test/fakes/upstream/script.ts";
import { withFaults } from "../../../test/fakes/upstream/server.ts";
import type { UsageRow } from "../../billing/ledger/usage-row.ts";
import { modelNotFound } from "../../config/find-route.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { sendWhole, type Serve } from "../../inference/call.ts";
import type { ClaimedItem } from "./claim.ts";
import { runItem, type RunServices } from "./run.ts";
import { ToolRoom } from "./tool-room.ts";

const uncounted = { take: () => {}, count: () => {}, receive: (bytes: number) => bytes, giveBack: () => {} };

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
  losses: 0,
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

/** What the tools of a test do. */
let runTool = (): Promise<{ kind: "hits"; hits: []; posts: 0; profiles: 0 }> =>
  Promise.reject(new Error("unset"));
const { fake, serve } = await serveOneUpstream(() => runTool());

const asked = { model: "public-model", max_tokens: 100, messages: [{ role: "user", content: "Hi" }] };

/** What becomes of a run before an upstream that speaks this. */
function run(
  upstream: Dialect,
  dialect: "messages" | "chat",
  request: object,
  expiresAt: number,
  serving: Serve = serve,
) {
  const body = Buffer.from(JSON.stringify(request));
  const route = routeTo([upstreamOf(fake.url, upstream)], {
    toolPolicy: "test/default",
    timeouts: { connectMs: 1_000, firstByteMs: null, streamIdleMs: 2_000, requestMs: 3_000 },
  });
  const services: RunServices = {
    serve: serving,
    meterFor: (_claim, onRow) => {
      const meter = new RecordingMeter();
      meter.onSettle = async () => onRow({} as UsageRow, async () => {});
      return meter;
    },
    snapshot: () => snapshotOf([route], ["*"], {}, { "test/default": toolPolicy }, "org_acme"),
    limitsOf: () => Promise.resolve({ limits: [], keyEpoch: 1 }),
    toolRoom: new ToolRoom({ admit: () => Promise.resolve(true) }),
    log: pino({ level: "silent" }),
    clock: { now: () => Date.now() },
    random: () => 0,
    succeededSince: () => false,
  };
  const form = dialect === "messages" ? "messages" : "openai";
  const its = { ...item, model: "public-model", dialect, form, body, expiresAt } as const;
  return runItem(services, its, body, uncounted);
}

/** The line of one that ended. */
function lineOf(end: Awaited<ReturnType<typeof run>>): unknown {
  if (end.kind !== "over") throw new Error(`it ended ${end.kind}`);
  return JSON.parse(end.line.toString());
}

test("rule 7.3: a long answer holds nobody until its line is made", async () => {
  const answer = Buffer.from(JSON.stringify({ text: "a".repeat(32 * 1024 * 1024) }));
  const held: number[] = [];
  for (let tries = 0; tries < 5; tries += 1)
    held.push(
      await longestHoldMs(() =>
        run("messages", "messages", asked, Date.now() + 60_000, async ({ sink }) =>
          sendWhole(sink, answer, {}),
        ),
      ),
    );
  expect(Math.min(...held)).toBeLessThan(20);
});

describe("rule 4.5: a tool loop ends within the route's request time-out from the end of its batch", () => {
  const search = toolCall("web_search", { query: "gates" });
  const withTools = {
    messages: { ...asked, tools: [{ type: "web_search_20250305", name: "web_search" }] },
    chat: { ...asked, web_search_options: {} },
  };
  /** Its batch ends at once. @returns its line. */
  const runLate = async (dialect: keyof typeof withTools = "messages") => {
    const begun = performance.now();
    const end = await run("messages", dialect, withTools[dialect], Date.now());
    expect(performance.now() - begun).toBeLessThan(6_000);
    return lineOf(end);
  };
  const paused = { result: { type: "succeeded", message: { stop_reason: "pause_turn" } } };

  test("however many calls it makes, each in its time", async () => {
    runTool = () => Promise.resolve({ kind: "hits", hits: [], posts: 0, profiles: 0 });
    // The time ends in the midst of a call: one sent at that moment would reach the next test's upstream.
    fake.next(...Array.from({ length: 8 }, () => withFaults(search, { delayHeadersMs: 1_100 })));
    expect(await runLate()).toMatchObject(paused);
    expect(fake.requests.length).toBeLessThanOrEqual(4);
  });

  test("also while a call of a tool waits for room", async () => {
    runTool = () => new Promise(() => {});
    fake.next(search);
    expect(await runLate()).toMatchObject(paused);
    expect(fake.requests).toHaveLength(1);
  });

  test("where no answer can pause, the result says that the time was over", async () => {
    runTool = () => new Promise(() => {});
    fake.next(search);
    const message = "The time of the batch was over before the answer was whole.";
    expect(await runLate("chat")).toMatchObject({ error: { code: "upstream_error", message } });
  });
});

describe("a failure that the answer itself tells of (rules 4.4, 4.8)", () => {
  const tomorrow = () => Date.now() + 86_400_000;
  const raw = (body: object) => ({ raw: { body: JSON.stringify(body), contentType: "application/json" } });

  test.each([
    ["authentication_error", null],
    ["invalid_request_error", "invalid_api_key"],
    ["insufficient_quota", "insufficient_quota"],
    ["not_found_error", null],
  ])("of our account is not asked again: %s %s", async (type, code) => {
    fake.next(raw({ error: { type, code, message: "no" } }));
    const line = lineOf(await run("chat", "chat", asked, tomorrow()));
    expect(line).toMatchObject({ response: { status_code: 502 }, error: { code: "upstream_error" } });
    expect(fake.requests).toHaveLength(1);
  });

  test("of a server's is", async () => {
    const failed = raw({ error: { type: "server_error", code: null, message: "no" } });
    fake.next(failed, failed, failed);
    expect(await run("chat", "chat", asked, tomorrow())).toMatchObject({ kind: "fault" });
  });

  test.each([
    ["chat", { error: { type: "server_error", code: null, message: "no" } }, 1],
    ["chat", { error: { code: 502, message: "no" } }, 1],
    ["messages", { type: "error", error: { type: "api_error", message: "no" } }, 1],
    ["chat", { error: { message: "no" } }, 4],
    ["chat", { error: "no" }, 4],
    ["messages", { type: "error", error: { type: "odd_error", message: "no" } }, 4],
  ] as const)(
    "counts more against the item where it is of no known kind: %s %o",
    async (upstream, body, own) => {
      fake.next(raw(body), raw(body), raw(body));
      expect(await run(upstream, "chat", asked, tomorrow())).toMatchObject({ kind: "fault", own });
    },
  );

  test.each([
    ["chat", { error: { type: "invalid_request_error", code: null, message: "no" } }],
    ["messages", { type: "error", error: { type: "invalid_request_error", message: "no" } }],
    ["chat", { error: { code: 400, message: "no" } }],
  ] as const)("of the request is not asked again: %s %o", async (upstream, body) => {
    fake.next(raw(body));
    const line = lineOf(await run(upstream, "chat", asked, tomorrow()));
    expect(line).toMatchObject({ response: { status_code: 400 }, error: { code: "invalid_request" } });
    expect(fake.requests).toHaveLength(1);
  });

  test("of the upstream, and not of the request, is told so also where it was charged", async () => {
    const error = { code: "rate_limit_exceeded", message: "slow down" };
    const usage = { input_tokens: 7, output_tokens: 3 };
    fake.next(raw({ id: "r", object: "response", status: "failed", output: [], error, usage }));
    const line = lineOf(await run("responses", "messages", asked, tomorrow()));
    const told = {
      error: { type: "api_error", code: "upstream_error", message: "The upstream failed; retry shortly." },
    };
    expect(line).toMatchObject({ result: { type: "errored", error: told } });
  });
});

const unserved: RunServices = {
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

test("rule 4.5: an item whose organization has just left the snapshot, or is not back in it yet, waits", async () => {
  const end = await runItem(unserved, item, Buffer.from("{}"), uncounted);
  expect(end).toEqual({ kind: "again", waitMs: 1_000, because: "stores" });
});

test("headers that cannot be read are a fault of the run, which throws nothing", async () => {
  const end = await runItem(unserved, { ...item, headers: "{" }, Buffer.from("{}"), uncounted);
  expect(end).toMatchObject({ kind: "fault" });
});
