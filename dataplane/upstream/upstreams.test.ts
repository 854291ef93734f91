import { createServer, type AddressInfo, type Socket } from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { Agent, buildConnector, type Dispatcher } from "undici";
import { routeTo, upstreamOf } from "../../test/fakes/inference.ts";
import { Attempts } from "./attempts.ts";
import { text } from "../../test/fakes/upstream/script.ts";
import { startUpstream, withFaults, type FakeUpstream } from "../../test/fakes/upstream/server.ts";
import { Cancellation } from "../lib/cancellation.ts";
import type { Route, Upstream } from "../config/schema.ts";
import { ApiError } from "../lib/api-error.ts";
import { Deadline } from "../lib/deadline.ts";
import { newRequestSummary } from "../telemetry/request-summary.ts";
import { Upstreams } from "./upstreams.ts";
import type { Outgoing, UpstreamRequest } from "./request.ts";
import { newUpstreamDispatcher } from "./dispatcher.ts";

/** Nobody listens there. */
const NOWHERE = "http://127.0.0.1:1";
/** The first byte's is longer than a busy machine takes: an answer that came late would be a failure of its upstream. */
const timeouts = { connectMs: 500, firstByteMs: 4_000, streamIdleMs: 500, requestMs: 5_000 };
/** For what is silent on purpose. */
const hasty = { timeouts: { ...timeouts, firstByteMs: 1_000 } };
const all: Route["retries"]["retryOn"] = ["connect", "rate_limited", "server_error", "first_byte_timeout"];

let one: FakeUpstream;
let two: FakeUpstream;
/** Resets every connection: one that another test left open would be asked again over a new one. */
let resetting: FakeUpstream;
let dispatcher: Dispatcher;
let now: number;
let upstreams: Upstreams;

beforeAll(async () => {
  const fallback = () => withFaults(text("x"), { reset: true });
  [one, two, resetting] = await Promise.all([startUpstream(), startUpstream(), startUpstream({ fallback })]);
  dispatcher = newUpstreamDispatcher();
});
beforeEach(() => {
  one.reset();
  two.reset();
  now = 1_000_000;
  upstreams = new Upstreams(dispatcher, { clock: { now: () => now }, random: () => 0 });
});
afterAll(async () => {
  await dispatcher.destroy();
  await Promise.all([one.close(), two.close(), resetting.close()]);
});

const named = (name: string, url: string, more: Partial<Upstream> = {}) =>
  upstreamOf(url, "chat", { name, ...more });
const pair = () => [named("one", one.url), named("two", two.url, { priority: 1 })];
/** A server that does with each request what `answer` says. */
async function serverThat(answer: (socket: Socket) => void): Promise<Disposable & { readonly url: string }> {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.on("data", () => answer(socket));
  });
  await new Promise<void>((listening) => void server.listen(0, "127.0.0.1", listening));
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, [Symbol.dispose]: () => void server.close() };
}

const body = Buffer.from('{"model":"m","messages":[{"role":"user","content":"hi"}]}');
const error = (status: number, headers: Record<string, string> = {}) => ({ error: { status }, headers });

interface Outcome {
  /** Body of the answer, or the error's code. */
  readonly said: string;
  readonly summary: UpstreamRequest["summary"];
  readonly error: ApiError | null;
}

/** Asks once and reads the whole answer. */
async function ask(
  list: Upstream[],
  route: Partial<Route> = {},
  request: Partial<UpstreamRequest> = {},
  write: (upstream: Upstream) => Outgoing = () => ({ body, headers: {} }),
): Promise<Outcome> {
  const summary = newRequestSummary(null);
  const deadline = new Deadline(5_000);
  const whole: UpstreamRequest = {
    route: routeTo(list, { timeouts, retries: { attempts: 2, retryOn: all }, ...route }),
    stream: false,
    batch: false,
    deadline,
    closed: new Cancellation(),
    summary,
    credential: () => undefined,
    conversation: "c",
    ...request,
  };
  try {
    const attempts = new Attempts(upstreams, whole);
    for (;;) {
      const upstream = await attempts.next();
      try {
        const answer = await attempts.send(write(upstream));
        const said = (await answer.call.whole(1e6)).toString();
        answer.accepted();
        attempts.taken();
        return { said, summary, error: null };
      } catch (thrown) {
        attempts.failed(thrown);
      }
    }
  } catch (thrown) {
    if (!(thrown instanceof ApiError)) throw thrown;
    return { said: thrown.code, summary, error: thrown };
  } finally {
    deadline.dispose();
  }
}

describe("before the first byte a failure goes to the next candidate", () => {
  test.each<[string, () => Upstream, Partial<Route>?]>([
    ["refused connection", () => named("gone", NOWHERE)],
    ["reset", () => named("resetting", resetting.url)],
    ["429", () => (one.next(error(429)), named("one", one.url))],
    ["500", () => (one.next(error(500)), named("one", one.url))],
    ["503", () => (one.next(error(503)), named("one", one.url))],
    ["529", () => (one.next(error(529)), named("one", one.url))],
    ["silence", () => (one.next(withFaults(text("x"), { hang: true })), named("one", one.url)), hasty],
    [
      "headers without a body",
      () => (one.next(withFaults(text("x"), { delayFirstByteMs: 4_000 })), named("one", one.url)),
      hasty,
    ],
  ])("%s", async (_name, first, route = {}) => {
    const { said, summary } = await ask([first(), named("two", two.url, { priority: 1 })], route);
    expect(said).toContain("chat.completion");
    expect(summary).toMatchObject({ tries: 2, upstream: "two" });
  });

  test.each([401, 402, 403, 404])("a status %i, which is about our account there", async (status) => {
    one.next(error(status));
    const { said, summary } = await ask(pair());
    expect(said).toContain("chat.completion");
    expect(summary).toMatchObject({ tries: 2, upstream: "two" });
  });

  test.each([400, 413, 422])("not so a status %i", async (status) => {
    one.next(error(status));
    const { summary, error: told } = await ask(pair());
    expect(told).not.toBeNull();
    expect(summary.tries).toBe(1);
    expect(two.requests).toHaveLength(0);
  });

  test.each<[Route["retries"]["retryOn"][number], () => void, Partial<Route>?]>([
    ["rate_limited", () => one.next(error(429))],
    ["server_error", () => one.next(error(500))],
    ["connect", () => one.next(withFaults(text("x"), { reset: true }))],
    ["first_byte_timeout", () => one.next(withFaults(text("x"), { hang: true })), hasty],
  ])("not so what retryOn leaves out: %s", async (left, arrange, route = {}) => {
    arrange();
    const retryOn = all.filter((name) => name !== left);
    expect((await ask(pair(), { ...route, retries: { attempts: 2, retryOn } })).error).not.toBeNull();
    expect(two.requests).toHaveLength(0);
  });
});

describe("rule 2.12: a status counts whatever becomes of its body", () => {
  const head = (status: number, more: string) =>
    `HTTP/1.1 ${status} X\r\nretry-after: 9\r\ncontent-type: application/json\r\n${more}\r\n`;
  const gzip = "content-encoding: gzip\r\n";
  test.each<[string, string, boolean]>([
    ["does not decompress", `${gzip}content-length: 4\r\n\r\nnone`, false],
    ["is empty, and said to be compressed", `${gzip}content-length: 0\r\n\r\n`, false],
    ["is cut before it begins", "content-length: 9\r\n\r\n", true],
    ["never begins", "content-length: 9\r\n\r\n", false],
  ])("one that %s", async (_what, answer, isCut) => {
    const told = async (status: number) => {
      const [first, rest = ""] = answer.split(/(?<=\r\n)\r\n/);
      using server = await serverThat((socket) => {
        socket.write(head(status, first ?? "") + rest);
        if (isCut) socket.end();
      });
      const { error: failure, summary } = await ask([named("one", server.url)]);
      const { code, retryAfterSeconds } = failure ?? {};
      return { code, retryAfterSeconds, calls: summary.calls.map(({ status: seen }) => seen) };
    };
    const statuses = [400, 413, 401, 429, 503];
    expect(await Promise.all(statuses.map(told))).toMatchObject([
      { code: "invalid_request", calls: [400] },
      { code: "too_large", calls: [413] },
      { code: "upstream_error", calls: [401] },
      { code: "rate_limited", retryAfterSeconds: 9, calls: [429] },
      { code: "unavailable", retryAfterSeconds: 9, calls: [503] },
    ]);
  });
});

describe("rule 1.14: an account that an upstream refuses", () => {
  test.each([401, 402, 403, 404])("is told as 502 when all candidates say %i", async (status) => {
    one.next(error(status));
    two.next(error(status));
    const { summary, error: told } = await ask(pair());
    expect(told).toMatchObject({ code: "upstream_error", cause: { upstreamStatus: status } });
    expect(summary.tries).toBe(2);
  });

  test("is not mended by asking again", async () => {
    one.model("m", error(401));
    const { summary } = await ask([named("one", one.url)], { retries: { attempts: 3, retryOn: all } });
    expect(summary.tries).toBe(1);
  });

  test("stands behind a failure that may pass, for the client and for a batch item that may wait", async () => {
    one.next(error(503));
    two.next(error(401));
    expect((await ask(pair())).error).toMatchObject({ code: "unavailable" });
    one.next(error(401));
    two.next(error(503));
    expect((await ask(pair())).error).toMatchObject({ code: "unavailable" });
  });

  test("does not hide what another says about the request", async () => {
    one.next(error(404));
    two.next(error(413));
    expect((await ask(pair())).error).toMatchObject({ code: "too_large" });
  });

  test.each([401, 402])(
    "%i takes it out after five in a row, and a success brings it back",
    async (status) => {
      one.model("m", error(status));
      for (let time = 0; time < 5; time += 1) expect((await ask(pair())).summary.tries).toBe(2);
      expect((await ask(pair())).summary).toMatchObject({ tries: 1, upstream: "two" });
      one.reset();
      now += 10_000;
      expect((await ask(pair())).summary).toMatchObject({ tries: 1, upstream: "one" });
    },
  );

  test.each([403, 404])("%i never takes it out", async (status) => {
    one.model("m", error(status));
    for (let time = 0; time < 8; time += 1) expect((await ask(pair())).summary.tries).toBe(2);
  });
});

test("rule 1.14: bytes that are no HTTP go to the next candidate and never eject", async () => {
  using server = await serverThat((socket) => void socket.end("SSH-2.0-OpenSSH_9.6\r\n"));
  const list = [named("odd", server.url), named("two", two.url, { priority: 1 })];
  for (let time = 0; time < 7; time += 1)
    expect((await ask(list)).summary).toMatchObject({ tries: 2, upstream: "two" });
});

test("rules 1.14, 12.8: a step of this machine's clock makes no ejection longer or shorter", () => {
  const own = new Upstreams(dispatcher);
  const upstream = named("one", one.url);
  const route = routeTo([upstream]);
  using elapsed = vi.spyOn(performance, "now");
  using date = vi.spyOn(Date, "now");
  elapsed.mockReturnValue(1_000);
  date.mockReturnValue(1_790_000_000_000);
  for (let time = 0; time < 5; time += 1) own.health.failed(route, upstream);
  expect(own.health.isEjected(route, upstream)).toBe(true);
  date.mockReturnValue(1_790_000_000_000 + 3_600_000);
  expect(own.health.isEjected(route, upstream)).toBe(true);
  date.mockReturnValue(1_790_000_000_000 - 3_600_000);
  elapsed.mockReturnValue(1_000 + 10_000);
  expect(own.health.isEjected(route, upstream)).toBe(false);
});

test("attempts counts all tries", async () => {
  for (const attempts of [1, 2, 3]) {
    one.reset();
    one.next(error(500), error(500), error(500), error(500));
    const { summary, error: told } = await ask([named("one", one.url)], {
      retries: { attempts, retryOn: all },
    });
    expect(told?.code).toBe("upstream_error");
    expect(summary.tries).toBe(attempts);
    upstreams = new Upstreams(dispatcher, { random: () => 0 });
  }
});

test("a single upstream is tried again, and the client sees only the success", async () => {
  one.next(error(503), text("second"));
  const { said, summary } = await ask([named("one", one.url)]);
  expect(said).toContain("second");
  expect(summary.tries).toBe(2);
});

describe("retry-after", () => {
  test("a short one is waited for", async () => {
    one.next(error(429, { "retry-after": "1" }), text("later"));
    const started = performance.now();
    const answered = ask([named("one", one.url)]);
    const { said } = await answered;
    expect(said).toContain("later");
    expect(performance.now() - started).toBeGreaterThan(950);
  });

  test("a long one is told to the client instead", async () => {
    one.next(error(429, { "retry-after": "30" }));
    const { error: told, summary } = await ask([named("one", one.url)]);
    expect(told).toMatchObject({ code: "rate_limited", retryAfterSeconds: 30 });
    expect(summary.tries).toBe(1);
  });

  test("rule 1.14: the upstream is skipped over until then, and is not ejected", async () => {
    one.next(error(429, { "retry-after": "20" }));
    await ask(pair());
    expect((await ask(pair())).summary).toMatchObject({ tries: 1, upstream: "two" });
    now += 20_000;
    expect((await ask(pair())).summary).toMatchObject({ tries: 1, upstream: "one" });
  });

  test.each([302, 400, 413])("one beside a status %i says nothing about the upstream", async (status) => {
    one.next(error(status, { "retry-after": "60" }));
    await ask(pair());
    expect((await ask(pair())).summary).toMatchObject({ tries: 1, upstream: "one" });
  });

  test("one that a proxy on the way wrote a second time is read once", async () => {
    const head = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 30\r\nretry-after: 20\r\n";
    using server = await serverThat((socket) => void socket.write(`${head}content-length: 2\r\n\r\n{}`));
    const { error: told } = await ask([named("busy", server.url)]);
    expect(told).toMatchObject({ code: "rate_limited", retryAfterSeconds: 30 });
  });

  test("one that does not fit into the request's time is not waited for", async () => {
    one.next(error(429, { "retry-after": "3" }));
    const deadline = new Deadline(1_000);
    const { error: told } = await ask([named("one", one.url)], {}, { deadline });
    expect(told?.code).toBe("rate_limited");
    deadline.dispose();
  });
});

describe("rule 1.14: health", () => {
  test("an upstream that keeps failing is left alone, and one success brings it back", async () => {
    const list = [named("one", one.url), named("two", two.url, { priority: 1 })];
    one.model("m", error(500));
    for (let time = 0; time < 5; time += 1) expect((await ask(list)).summary.tries).toBe(2);
    expect((await ask(list)).summary).toMatchObject({ tries: 1, upstream: "two" });
    one.reset();
    now += 10_000;
    expect((await ask(list)).summary).toMatchObject({ tries: 1, upstream: "one" });
    one.next(error(500));
    expect((await ask(list)).summary.tries).toBe(2);
    expect((await ask(list)).summary).toMatchObject({ tries: 1, upstream: "one" });
  });

  test.each([{}, { "retry-after": "1" }])(
    "a 429 (%o) is an answer: failures around it are not in a row",
    async (headers) => {
      const answers = [...Array.from({ length: 4 }, () => error(500)), error(429, headers), error(500)];
      for (const answer of answers) {
        one.next(answer);
        expect((await ask(pair())).summary.tries).toBe(2);
        now += 1_000;
      }
      expect((await ask(pair())).summary).toMatchObject({ tries: 1, upstream: "one" });
    },
  );

  test("when all are ejected one is still tried, and an error comes within the connect time-out", async () => {
    const list = [named("a", NOWHERE), named("b", NOWHERE)];
    for (let time = 0; time < 10; time += 1) await ask(list);
    const started = performance.now();
    const { error: told, summary } = await ask(list);
    expect(told?.code).toBe("upstream_error");
    expect(summary.tries).toBeGreaterThanOrEqual(1);
    expect(performance.now() - started).toBeLessThan(timeouts.connectMs);
  });

  test("nor does it hang where all take the request and say nothing", async () => {
    for (const fake of [one, two]) fake.model("m", withFaults(text("x"), { hang: true }));
    const slow = { timeouts: { ...timeouts, connectMs: 300, firstByteMs: 20 } };
    for (let time = 0; time < 5; time += 1) await ask(pair(), slow);
    const started = performance.now();
    const patient = { timeouts: { ...slow.timeouts, firstByteMs: 4_000 } };
    const { error: told } = await ask(pair(), patient, { stream: true });
    expect(told?.code).toBe("timeout");
    expect(performance.now() - started).toBeLessThan(2_000);
  });

  /** What takes an upstream out. */
  const faults = [error(500), error(401), error(402), withFaults(text("x"), { reset: true })];
  const silence = () => withFaults(text("x"), { hang: true });
  const patient = { timeouts: { ...timeouts, connectMs: 300, firstByteMs: null } };

  test.each(faults.flatMap((fault) => [true, false].map((stream) => [fault, stream] as const)))(
    "nor where all were taken out by something else and now say nothing: %j, streamed %j",
    async (fault, stream) => {
      for (const fake of [one, two]) fake.model("m", fault);
      for (let time = 0; time < 10; time += 1) await ask(pair(), patient);
      for (const fake of [one, two]) fake.model("m", silence());
      const started = performance.now();
      expect((await ask(pair(), patient, { stream })).error?.code).toBe("timeout");
      expect(performance.now() - started).toBeLessThan(1_500);
    },
  );

  test("nor where the last one that was in is taken out by this very request", async () => {
    two.model("m", error(500));
    const alone = [named("two", two.url, { priority: 1 })];
    for (let time = 0; time < 5; time += 1) await ask(alone, { retries: { attempts: 1, retryOn: all } });
    one.model("m", error(500));
    for (let time = 0; time < 4; time += 1)
      await ask([named("one", one.url)], { retries: { attempts: 1, retryOn: all } });
    two.model("m", silence());
    const started = performance.now();
    const { error: told, summary } = await ask(pair(), patient);
    expect(told?.code).toBe("timeout");
    expect(summary).toMatchObject({ tries: 2, upstream: "two" });
    expect(performance.now() - started).toBeLessThan(1_500);
  });

  test("the probe after an ejection has the time that the route gives, and tries before it take none of it", async () => {
    one.model("m", error(500));
    const alone = [named("one", one.url)];
    for (let time = 0; time < 5; time += 1) await ask(alone);
    one.model("m", withFaults(text("x"), { delayFirstByteMs: 700 }));
    now += 9_999;
    const seen = one.requests.length;
    const early = ask(alone, { ...patient, retries: { attempts: 1, retryOn: all } });
    await one.arrived(seen + 1);
    now += 1;
    expect((await early).error?.code).toBe("timeout");
    expect((await ask(alone, patient)).error).toBeNull();
    expect((await ask(alone, patient)).error).toBeNull();
  });

  test("one that only rests has the time that the route gives", async () => {
    one.next(error(429, { "retry-after": "20" }), withFaults(text("x"), { delayFirstByteMs: 700 }));
    const alone = [named("one", one.url)];
    await ask(alone, patient);
    expect((await ask(alone, patient)).error).toBeNull();
  });

  test("an upstream that answers 400 is well", async () => {
    one.model("m", error(400));
    for (let time = 0; time < 7; time += 1) await ask(pair());
    expect(two.requests).toHaveLength(0);
  });
});

test.each(["EMFILE", "EADDRNOTAVAIL"])(
  "no descriptor or port left (%s) is our trouble, not the upstream's",
  async (code) => {
    let exhausted = true;
    const connect = buildConnector({});
    const scarce = new Agent({
      connect: (options, callback) => {
        if (exhausted) callback(Object.assign(new Error(code), { code }), null);
        else connect(options, callback);
      },
    });
    upstreams = new Upstreams(scarce, { clock: { now: () => now }, random: () => 0 });
    for (let time = 0; time < 7; time += 1) {
      const { error: told, summary } = await ask(pair());
      expect(told).toMatchObject({ code: "unavailable", retryAfterSeconds: 1 });
      expect(summary.tries).toBe(1);
    }
    exhausted = false;
    expect((await ask(pair())).summary).toMatchObject({ tries: 1, upstream: "one" });
    await scarce.destroy();
  },
);

test("a conversation stays on its upstream, others spread", async () => {
  const list = [named("one", one.url), named("two", two.url)];
  const seen = new Map<string, Set<string | null>>();
  for (let round = 0; round < 3; round += 1)
    for (let id = 0; id < 12; id += 1) {
      const { summary } = await ask(list, {}, { conversation: `c${id}` });
      seen.set(`c${id}`, (seen.get(`c${id}`) ?? new Set()).add(summary.upstream));
    }
  expect([...seen.values()].every((names) => names.size === 1)).toBe(true);
  expect(new Set([...seen.values()].flatMap((names) => [...names])).size).toBe(2);
});

test("a candidate whose dialect cannot hold the request is passed over", async () => {
  const refused = new ApiError("unsupported_parameter", "stop: not there");
  const write = ({ name }: Upstream): Outgoing => {
    if (name === "one") throw refused;
    return { body, headers: {} };
  };
  expect((await ask(pair(), {}, {}, write)).summary).toMatchObject({ tries: 1, upstream: "two" });
  expect((await ask([named("one", one.url)], {}, {}, write)).error).toBe(refused);
});

test("an upstream is called at exactly its address, with its headers and its credential", async () => {
  const azure = named("azure", one.url, {
    url: `${one.url}/openai/deployments/x/chat/completions?api-version=2026-06-01&a=b%20c`,
    headers: { "x-team": "ml", "user-agent": "acme", accept: "application/x" },
    credential: { id: "ns/azure/key", header: "api-key" },
  });
  const credential = (id: string) => (id === "ns/azure/key" ? "secret" : undefined);
  await ask([azure], {}, { credential });
  expect(one.requests[0]).toMatchObject({
    path: "/openai/deployments/x/chat/completions?api-version=2026-06-01&a=b%20c",
    headers: { "api-key": "secret", "x-team": "ml", "user-agent": "acme", accept: "application/x" },
  });
});

test("a client that leaves ends the tries", async () => {
  const controller = new AbortController();
  one.next(withFaults(error(503), { delayHeadersMs: 100 }));
  const asked = ask(pair(), {}, { closed: Cancellation.by(controller.signal) });
  await one.arrived(1);
  controller.abort();
  expect((await asked).error).not.toBeNull();
  expect(two.requests).toHaveLength(0);
});

test("a call that is never billed ends with whoever wanted it", async () => {
  const controller = new AbortController();
  one.next(withFaults(text("x"), { hang: true }));
  const slow = { timeouts: { ...timeouts, firstByteMs: 60_000 } };
  const asked = ask(pair(), slow, { closed: Cancellation.by(controller.signal), unbilled: true });
  await one.arrived(1);
  controller.abort();
  const left = performance.now();
  expect((await asked).error).not.toBeNull();
  expect(performance.now() - left).toBeLessThan(1_500);
});

describe("design.md §4.7: a reset on a kept-alive connection before any byte", () => {
  const hangUp = {
    reset: (socket: Socket) => void socket.resetAndDestroy(),
    closed: (socket: Socket) => void socket.end(),
  };
  /** Answers once on each connection; the next request on it meets its end unread, as by a server that was restarted. */
  async function forgetful(end: keyof typeof hangUp = "reset") {
    const served = new WeakSet<Socket>();
    const seen = { requests: 0, resets: 0 };
    const server = await serverThat((socket) => {
      seen.requests += 1;
      if (served.has(socket)) {
        seen.resets += 1;
        hangUp[end](socket);
        return;
      }
      served.add(socket);
      socket.write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}");
    });
    return { ...server, seen, upstream: named("stale", server.url) };
  }

  test.each(["reset", "closed"] as const)(
    "is retried on a new connection (%s), whatever else is pooled, and never ejects",
    async (end) => {
      using server = await forgetful(end);
      const fresh = newUpstreamDispatcher({ keepAlive: false });
      upstreams = new Upstreams(dispatcher, { clock: { now: () => now }, random: () => 0, fresh });
      const list = [server.upstream, named("two", two.url, { priority: 1 })];
      const crowd = () => Promise.all(Array.from({ length: 8 }, () => ask(list)));
      for (let round = 0; round < 4; round += 1)
        for (const { said, summary } of await crowd())
          expect({ said, upstream: summary.upstream }).toEqual({ said: "{}", upstream: "stale" });
      expect(server.seen.resets).toBeGreaterThanOrEqual(5);
      await fresh.destroy();
    },
  );

  test.each([
    ["half of its headers", "HTTP/1.1 200 OK\r\nx: y\r\n"],
    ["an early hint", "HTTP/1.1 103 Early Hints\r\n\r\n"],
  ])("is not what befalls a new one after %s: that ejects", async (_name, beginning) => {
    using server = await serverThat((socket) => {
      socket.write(beginning);
      setTimeout(() => socket.resetAndDestroy(), 10);
    });
    const list = [named("dying", server.url), named("two", two.url, { priority: 1 })];
    for (let time = 0; time < 5; time += 1) expect((await ask(list)).summary.tries).toBe(2);
    expect((await ask(list)).summary).toMatchObject({ tries: 1, upstream: "two" });
  });

  test("counts as a try: with one attempt a request is never sent twice", async () => {
    using server = await forgetful();
    const retries = { attempts: 1, retryOn: all };
    const outcomes = [];
    for (let time = 0; time < 6; time += 1) outcomes.push(await ask([server.upstream], { retries }));
    const failed = outcomes.filter(({ said }) => said === "upstream_error");
    expect(failed.length).toBeGreaterThan(0);
    expect(server.seen).toEqual({ requests: 6, resets: failed.length });
  });

  test("costs none of several attempts: the upstream behind it is asked", async () => {
    using server = await forgetful();
    const list = [named("one", one.url), { ...server.upstream, priority: 1 }];
    one.model("m", error(500));
    await ask(list);
    const { said, summary } = await ask(list);
    expect(server.seen.resets).toBe(1);
    expect({ said, tries: summary.tries, upstream: summary.upstream }).toEqual({
      said: "{}",
      tries: 3,
      upstream: "stale",
    });
  });

  test("costs one from the second on, of the same upstream: the tries are bounded", async () => {
    let answered = 0;
    using server = await serverThat((socket) => {
      answered += 1;
      if (answered > 8) return void socket.resetAndDestroy();
      socket.write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}");
    });
    const list = [named("odd", server.url)];
    await Promise.all(Array.from({ length: 8 }, () => ask(list)));
    // Without a dispatcher of new connections the pool's next one is stale too.
    const { error: told, summary } = await ask(list);
    expect(told?.code).toBe("upstream_error");
    expect(summary.tries).toBe(3);
  });

  test("counts as Connect: without it in retryOn it is not retried", async () => {
    using server = await forgetful();
    const retries = { attempts: 3, retryOn: all.filter((name) => name !== "connect") };
    await ask([server.upstream], { retries });
    expect((await ask([server.upstream], { retries })).summary.tries).toBe(1);
  });
});
