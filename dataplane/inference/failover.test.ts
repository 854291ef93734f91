/**
 * What a client sees when its route has more than one upstream and the first one fails: before the first byte the next
 * one answers, in the client's dialect whatever it speaks; after it the client gets the fault, and no other upstream is asked.
 */
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import {
  callOf,
  declaredSearch,
  routeTo,
  snapshotOf,
  toolPolicy,
  upstreamOf,
  type TestCall,
} from "../../test/fakes/inference.ts";
import { noTools } from "../../test/fakes/no-tools.ts";
import { text, type Faults } from "../../test/fakes/upstream/script.ts";
import { startUpstream, withFaults, type FakeUpstream } from "../../test/fakes/upstream/server.ts";
import { paths, type Way } from "../../test/fakes/ways.ts";
import { dialects, type Dialect } from "../dialects/dialect.ts";
import { sealing } from "../lib/seal.ts";
import { metrics } from "../telemetry/metrics.ts";
import { Upstreams } from "../upstream/upstreams.ts";
import { newUpstreamDispatcher } from "../upstream/dispatcher.ts";
import { EJECTION_MS, FAILURES_TO_EJECT } from "../upstream/health.ts";
import { createServe } from "./serve.ts";
import type { Serve } from "./call.ts";

const usage = { input: 11, output: 7 };
const answer = text("Hello from the second.", usage);
const cells = dialects.flatMap((client) => dialects.map((second) => [client, second] as const));

/** A gateway before two upstreams. */
interface World extends AsyncDisposable {
  readonly first: FakeUpstream;
  readonly second: FakeUpstream;
  serve: Serve;
  /** Unix milliseconds, for the upstreams' health. */
  now: number;
  /** As if newly started: the second upstream answers once, and both are well. */
  reset(): void;
}

async function newWorld(): Promise<World> {
  const [first, second] = await Promise.all([startUpstream(), startUpstream()]);
  const dispatcher = newUpstreamDispatcher();
  const newServe = () => {
    const upstreams = new Upstreams(dispatcher, { clock: { now: () => world.now } });
    return createServe(upstreams, sealing([{ id: "t", key: Buffer.alloc(32) }]), noTools);
  };
  const world: World = {
    first,
    second,
    serve: newServe(),
    now: 1_000_000,
    reset: () => {
      first.reset();
      second.reset();
      second.next(answer);
      world.now = 1_000_000;
      world.serve = newServe();
    },
    [Symbol.asyncDispose]: async () => {
      await dispatcher.destroy();
      await Promise.all([first.close(), second.close()]);
    },
  };
  return world;
}

let shared: World;
beforeAll(async () => void (shared = await newWorld()));
beforeEach(() => shared.reset());
afterAll(() => shared[Symbol.asyncDispose]());

interface Asked {
  readonly client: Dialect;
  /** Dialects of the upstreams. */
  readonly speaks: readonly [first: Dialect, second: Dialect];
  readonly stream: boolean;
  /** On `tools` the client declares web search. */
  readonly path?: Way["path"];
  readonly requestMs?: number;
  /** Whose upstreams; default: the shared ones. */
  readonly world?: World;
  /** Where another first upstream is. */
  readonly firstUrl?: string;
}

function callFor({ client, speaks, stream, path, ...more }: Asked): TestCall {
  const { requestMs = 60_000, world = shared, firstUrl = world.first.url } = more;
  const upstreams = [
    upstreamOf(firstUrl, speaks[0], { name: "first" }),
    upstreamOf(world.second.url, speaks[1], { name: "second", priority: 1 }),
  ];
  const route = routeTo(upstreams, {
    retries: { attempts: 2, retryOn: ["connect", "rate_limited", "server_error", "first_byte_timeout"] },
    // No test waits for these, and none may end, on a busy machine, what a test holds open.
    timeouts: { connectMs: 30_000, firstByteMs: 60_000, streamIdleMs: 60_000, requestMs },
    toolPolicy: "test/default",
  });
  const messages = [{ role: "user", content: "hi" }];
  const content = client === "responses" ? { input: "hi" } : { messages, max_tokens: 50 };
  return callOf(client, snapshotOf([route], ["*"], {}, { "test/default": toolPolicy }), {
    model: "public-model",
    stream,
    ...content,
    ...(path === "tools" ? declaredSearch[client] : {}),
  });
}

/** Makes a call to a route whose first upstream speaks the client's dialect, and the second one `other`. */
const callTo = (client: Dialect, other: Dialect, stream: boolean, requestMs?: number): TestCall =>
  callFor({ client, speaks: [client, other], stream, ...(requestMs === undefined ? {} : { requestMs }) });

const terminal = { messages: /message_stop/, chat: /\[DONE\]/, responses: /response\.completed/ };

describe.each(cells)("a %s client whose second upstream speaks %s", (client, other) => {
  test.each([
    ["whole", false],
    ["streamed", true],
  ])("gets its answer from it, %s, and pays for that one alone", async (_form, stream) => {
    shared.first.next({ error: { status: 503 } });
    const call = callTo(client, other, stream);
    await shared.serve(call);
    expect(call.sink.status).toBe(200);
    expect(call.sink.text).toContain("second");
    expect(call.sink.text).toContain("public-model");
    if (stream) expect(call.sink.text).toMatch(terminal[client]);
    expect(call.summary).toMatchObject({
      tries: 2,
      upstream: "second",
      servingPath: client === other ? "relay" : "convert",
    });
    expect(call.meter.opened).toHaveLength(1);
    expect(call.meter.settled).toMatchObject([{ status: "ok", upstream: "second", tokens: usage }]);
  });
});

// Each in a world of its own and all at once: an answer whose client left is read for two seconds more.
describe.concurrent.each(paths)("a $client request to an upstream that speaks $upstream ($path)", (way) => {
  const { upstream } = way;
  const newCall = (world: World, stream = false) =>
    callFor({ ...way, world, speaks: [upstream, upstream], stream });
  const tried = async (world: World) => {
    const call = newCall(world);
    await world.serve(call);
    return [call.summary.tries, call.summary.upstream];
  };
  const fail = async (world: World) => {
    world.first.model("upstream-model", { error: { status: 503 } });
    for (let time = 0; time < FAILURES_TO_EJECT; time += 1) expect(await tried(world)).toEqual([2, "second"]);
  };
  const newAnsweringWorld = async () => {
    const world = await newWorld();
    world.second.model("upstream-model", answer);
    return world;
  };

  test("shows by a stream's first event that its upstream is well, and no more by its end", async () => {
    await using world = await newAnsweringWorld();
    await fail(world);
    world.now += EJECTION_MS.first;
    world.first.model("upstream-model", withFaults(text("one two three four five six"), { stallAtEvent: 5 }));
    const probe = newCall(world, true);
    const begun = once(probe.sink, "piece");
    const probed = world.serve(probe);
    await begun;
    world.first.model("upstream-model", answer);
    expect(await tried(world)).toEqual([1, "first"]);
    await fail(world);
    probe.sink.leave();
    await probed;
    expect(await tried(world)).toEqual([1, "second"]);
  });

  test("shows nothing of its upstream when its client leaves before a stream's first event", async () => {
    await using world = await newAnsweringWorld();
    world.first.next(withFaults(answer, { stallAtByte: 10 }));
    const call = newCall(world, true);
    const served = world.serve(call).catch(() => {});
    await vi.waitUntil(() => call.summary.upstreamWaitMs > 0, { timeout: 15_000 });
    await fail(world);
    call.sink.leave();
    await served;
    expect(await tried(world)).toEqual([1, "second"]);
  });

  test("shows by a whole answer that its upstream is well, and no more once that is paid for", async () => {
    await using world = await newAnsweringWorld();
    world.first.next(answer);
    const call = newCall(world);
    const { promise: paid, resolve: pay } = Promise.withResolvers<void>();
    const answered = new Promise<void>((isAnswered) => {
      call.meter.onSettle = async () => {
        isAnswered();
        await paid;
      };
    });
    const served = world.serve(call);
    await answered;
    await fail(world);
    pay();
    await served;
    expect(await tried(world)).toEqual([1, "second"]);
  });
});

describe.each(paths)("a whole $client answer of an upstream that speaks $upstream ($path)", (way) => {
  const { upstream } = way;
  test("that cannot be read never takes its upstream out (rule 1.14)", async () => {
    shared.first.model("upstream-model", {
      raw: { body: '{"half": "an ans', contentType: "application/json" },
    });
    for (let time = 0; time <= FAILURES_TO_EJECT; time += 1) {
      const call = callFor({ ...way, speaks: [upstream, upstream], stream: false });
      await expect(shared.serve(call)).rejects.toMatchObject({ code: "upstream_error" });
      expect(call.summary).toMatchObject({ tries: 1, upstream: "first" });
    }
  });

  test.each([401, 402, 403, 404])("goes on to the second when the first says %i", async (status) => {
    shared.first.next({ error: { status } });
    shared.second.model("upstream-model", answer);
    const call = callFor({ ...way, speaks: [upstream, upstream], stream: false });
    await shared.serve(call);
    expect(call.summary).toMatchObject({ tries: 2, upstream: "second" });
  });
});

describe.each(paths)("a $client stream of an upstream that speaks $upstream ($path)", (way) => {
  const { client, upstream } = way;
  const streamed = () => callFor({ ...way, speaks: [upstream, upstream], stream: true });
  const beginnings: readonly [string, Faults][] = [
    ["an error for its first event", { errorAtEvent: { event: 0, type: "overloaded_error" } }],
    ["nothing at all", { empty: true }],
    ["a connection that breaks before the first event", { cutAtByte: 10 }],
    ["a connection that is reset before the first event", { resetAtByte: 10 }],
  ];
  test.each(beginnings)("that begins with %s goes to the next upstream", async (_name, faults) => {
    shared.first.next(withFaults(text("never seen"), faults));
    const call = streamed();
    await shared.serve(call);
    expect(call.sink.text).toContain("second");
    expect(call.sink.text).toMatch(terminal[client]);
    expect(call.sink.text).not.toMatch(/"type":"error"|event: error|never seen/);
    expect(call.summary).toMatchObject({ tries: 2, servingPath: way.path });
  });

  test("breaks before its first event until its upstream is left alone", async () => {
    shared.first.model("upstream-model", withFaults(text("never seen"), { cutAtByte: 10 }));
    shared.second.model("upstream-model", answer);
    const tries: number[] = [];
    for (let time = 0; time <= FAILURES_TO_EJECT; time += 1) {
      const call = streamed();
      await shared.serve(call);
      tries.push(call.summary.tries);
    }
    expect(tries).toEqual([...Array.from({ length: FAILURES_TO_EJECT }, () => 2), 1]);
  });

  test("that ends in an orderly way without an event was no stream: nobody else is asked", async () => {
    shared.first.next(withFaults(text("never seen"), { html: true }));
    const call = streamed();
    await expect(shared.serve(call)).rejects.toMatchObject({ code: "upstream_error" });
    expect(call.summary.tries).toBe(1);
  });

  test("that begins with garbage never takes its upstream out (rule 1.14)", async () => {
    const event = "event: message_start\ndata: {broken\n\n";
    shared.first.model("upstream-model", { raw: { body: event, contentType: "text/event-stream" } });
    for (let time = 0; time <= FAILURES_TO_EJECT; time += 1) {
      const call = streamed();
      await shared.serve(call).catch(() => {});
      expect(call.summary).toMatchObject({ tries: 1, upstream: "first" });
    }
  });

  test("that begins with an error about our account goes to the next upstream", async () => {
    shared.first.next(withFaults(text("x"), { errorAtEvent: { event: 0, type: "permission_error" } }));
    const call = streamed();
    await shared.serve(call);
    expect(call.sink.text).toContain("second");
  });

  test("that has begun stays with its upstream: its end is an error, not another answer", async () => {
    shared.first.next(withFaults(text("one two three four five six"), { cutAtEvent: 4 }));
    const call = streamed();
    await shared.serve(call);
    expect(call.sink.text).not.toMatch(terminal[client]);
    expect(call.sink.text).toMatch(/error/);
    expect(call.summary).toMatchObject({ tries: 1, upstream: "first", errorCode: "upstream_error" });
    expect(shared.second.requests).toHaveLength(0);
  });
});

test("a comment is no event: a connection that breaks after one goes to the next upstream", async () => {
  const commenting = createServer((socket) => {
    const head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.on("error", () => {});
    socket.on("data", () => void socket.end(`${head}8\r\n: ping\n\n\r\n`));
  });
  await once(commenting.listen(0, "127.0.0.1"), "listening");
  const { port } = commenting.address() as AddressInfo;
  shared.second.model("upstream-model", answer);
  for (const { path, client, upstream } of paths) {
    const speaks = [upstream, upstream] as const;
    const call = callFor({ client, speaks, stream: true, path, firstUrl: `http://127.0.0.1:${port}` });
    await shared.serve(call);
    expect(call.summary).toMatchObject({ tries: 2, upstream: "second" });
    shared.now += EJECTION_MS.most;
  }
  commenting.close();
});

test("how many calls each upstream has under way can be read from the metrics", async () => {
  const active = async () => {
    const { values } = await metrics.upstreamActive.get();
    const mine = values.filter(({ labels }) => labels.model === "public-model");
    return Object.fromEntries(mine.map(({ labels, value }) => [String(labels.upstream), value]));
  };
  shared.first.model("upstream-model", withFaults(text("slow"), { hang: true }));
  const calls = [1, 2, 3].map(() => callTo("chat", "chat", true));
  const served = calls.map((call) => shared.serve(call));
  await shared.first.arrived(3);
  expect(await active()).toMatchObject({ first: 3, second: 0 });
  for (const call of calls) call.sink.leave();
  await Promise.allSettled(served);
  expect(await active()).toMatchObject({ first: 0, second: 0 });
});

test("retries end with the request's time", async () => {
  shared.first.model("upstream-model", withFaults(text("slow"), { hang: true }));
  const call = callTo("chat", "chat", false, 300);
  await expect(shared.serve(call)).rejects.toMatchObject({ code: "timeout" });
  expect(shared.second.requests).toHaveLength(0);
  expect(call.meter.released).toBe(1);
});
