/**
 * Rule 1.11: a client that leaves pays what its upstream reports within two seconds and 256 KiB, else its prompt and what
 * was seen, on every way that an answer takes. All ways of a case that waits run at once: their two seconds are the same.
 */
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";
import type { TestCall } from "../../test/fakes/inference.ts";
import { serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { whileSteady } from "../../test/fakes/steady.ts";
import { text, toolCall, type Step } from "../../test/fakes/upstream/script.ts";
import type { Script } from "../../test/fakes/upstream/step-choice.ts";
import { withFaults } from "../../test/fakes/upstream/server.ts";
import { callOn, nameOf, ways, type Way } from "../../test/fakes/ways.ts";
import type { FinalUsage } from "../billing/meter.ts";
import { promptOf } from "../billing/token-usage.ts";

/** What a search waits for; null: nothing. */
let searching: (() => Promise<void>) | null = null;
const { fake, serve } = await serveOneUpstream(async (_name, _input, _scope, signal) => {
  await searching?.();
  signal.throwIfAborted();
  return { kind: "hits", hits: [], posts: 0, profiles: 0 };
});

const long = {
  route: {
    limits: { contextTokens: 200_000, maxOutputTokens: 10_000 },
    timeouts: { connectMs: 5_000, firstByteMs: 15_000, streamIdleMs: 15_000, requestMs: 30_000 },
  },
};
const limited = (client: Way["client"]) => ({
  ...long,
  body: {
    [{ messages: "max_tokens", chat: "max_completion_tokens", responses: "max_output_tokens" }[client]]:
      10_000,
  },
});
const streams = ways.filter(({ stream }) => stream);
/** Whether the upstream reports usage at the beginning: only Messages upstreams do. */
const early = ({ upstream }: Way) => upstream === "messages";

/** Serves all ways at once; `leave` gets each call before it is served. */
async function serveAll(some: readonly Way[], script: Script, leave: (call: TestCall) => void) {
  fake.model("upstream-model", script);
  const begun = performance.now();
  return await Promise.all(
    some.map(async (way) => {
      const call = callOn(fake.url, way, limited(way.client));
      leave(call);
      await serve(call);
      expect(call.meter.settled.length + call.meter.released, nameOf(way)).toBe(1);
      const tookMs = performance.now() - begun;
      return { way, name: nameOf(way), call, charge: call.meter.settled[0] as FinalUsage, tookMs };
    }),
  );
}

/** Makes a client leave once the upstream has been asked this often in the test. */
const leaveOnceAsked = (times: number) => (call: TestCall) =>
  void fake.arrived(times, 15_000).then(
    () => call.sink.leave(),
    () => {},
  );
/** Answers only after all clients of `leaveOnceAsked` have left. */
const answerOnceAsked = (times: number, step: Step) => async (): Promise<Step> => {
  await fake.arrived(times, 15_000);
  await turn();
  return step;
};
const leaveAtFirstPiece = (call: TestCall) => void call.sink.once("piece", () => call.sink.leave());

test("a report that comes a moment after its client left is what is charged", async () => {
  const usage = { input: 50, output: 5_000 };
  // Behind the last word, before the report.
  const step = withFaults(text("one two three four five six", usage), { delayBetweenEventsMs: 30 });
  const ends = await serveAll(streams, step, leaveAtFirstPiece);
  for (const { name, charge } of ends)
    expect(charge, name).toMatchObject({
      status: "cancelled",
      estimated: false,
      iterations: 1,
      tokens: { input: 50, output: 5_000 },
    });
});

test("a whole answer whose client leaves before it came is charged as reported", async () => {
  const usage = { input: 50, output: 5_000 };
  const answer = answerOnceAsked(ways.length, text("Hello", usage));
  const ends = await serveAll(ways, answer, leaveOnceAsked(ways.length));
  for (const { name, charge } of ends)
    expect(charge, name).toMatchObject({ status: "cancelled", estimated: false, tokens: usage });
});

test("without a report in two seconds the call is aborted, and charged are the prompt and what was seen", async () => {
  const step = withFaults(text("word ".repeat(40), { input: 50, output: 5_000 }), { stallAtEvent: 30 });
  const ends = await serveAll(streams, step, leaveAtFirstPiece);
  for (const { way, name, charge, tookMs } of ends) {
    expect(charge, name).toMatchObject({ status: "cancelled", estimated: true, iterations: 1 });
    expect(tookMs, name).toBeGreaterThan(1_900);
    if (early(way)) expect(charge.tokens.input, name).toBe(50);
    else expect(charge.tokens.input, name).toBeGreaterThan(10);
    expect(charge.tokens.output, name).toBeGreaterThan(15);
    expect(charge.tokens.output, name).toBeLessThan(60);
  }
  await expect.poll(() => fake.requests.map(({ outcome }) => outcome)).toEqual(ends.map(() => "aborted"));
});

test("one that never began costs its prompt", async () => {
  const step = withFaults(text("never said"), { hang: true });
  const ends = await serveAll(ways, step, leaveOnceAsked(ways.length));
  for (const { name, charge, tookMs } of ends) {
    expect(charge, name).toMatchObject({ status: "cancelled", estimated: true, iterations: 1 });
    expect(tookMs, name).toBeGreaterThan(1_900);
    expect(promptOf(charge.tokens), name).toBeGreaterThan(10);
    expect([charge.tokens.output, charge.upstream], name).toEqual([0, "primary"]);
  }
  await expect.poll(() => fake.requests.map(({ outcome }) => outcome)).toEqual(ends.map(() => "aborted"));
});

test("one of which headers came, and nothing else, costs its prompt", async () => {
  const step = withFaults(text("never said"), { delayFirstByteMs: 60_000 });
  const ends = await serveAll(ways, step, leaveOnceAsked(ways.length));
  for (const { name, charge } of ends) {
    expect(charge, name).toMatchObject({ status: "cancelled", estimated: true });
    expect(promptOf(charge.tokens), name).toBeGreaterThan(10);
    expect(charge.tokens.output, name).toBe(0);
  }
});

// On a busy machine a way may take its two seconds in each of its runs.
test("no more than 256 KiB are read for nobody", { timeout: 180_000 }, async () => {
  const parts = [{ type: "text", text: "x".repeat(1_600_000) }] as const;
  const flood: Step = {
    answer: { parts, deltaChars: 64_000, usage: { input: 50, output: 5_000 } },
    faults: { delayBetweenEventsMs: 5 },
  };
  for (const way of streams) {
    // One by one, the ways reach 256 KiB long before two seconds are over, unless the machine pauses meanwhile.
    const { name, charge } = await whileSteady(500, async () => {
      fake.requests.length = 0;
      const [end] = await serveAll([way], flood, leaveAtFirstPiece);
      return end as NonNullable<typeof end>;
    });
    expect(charge, name).toMatchObject({ status: "cancelled", estimated: true });
    // At four bytes a token, and as much as came with the first piece.
    expect(charge.tokens.output, name).toBeGreaterThan(40_000);
    expect(charge.tokens.output, name).toBeLessThan(120_000);
    await expect.poll(() => fake.requests.map(({ outcome }) => outcome)).toEqual(["aborted"]);
  }
});

test("a client that stalled and is cut pays what was reported meanwhile", async () => {
  const usage = { input: 50, output: 5_000 };
  const step = withFaults(text("one two three four five six", usage), { delayBetweenEventsMs: 20 });
  const ends = await serveAll(streams, step, (call) => {
    call.sink.accept = () => false;
    call.sink.once("piece", () =>
      setTimeout(() => {
        call.sink.accept = () => true;
        call.sink.leave();
      }, 300),
    );
  });
  for (const { name, charge } of ends)
    expect(charge, name).toMatchObject({ status: "cancelled", estimated: false, tokens: usage });
});

test("an upstream that fails after its client has left costs what was seen, and nothing before its first byte", async () => {
  const cut = withFaults(text("one two three four five six"), { delayBetweenEventsMs: 30, cutAtEvent: 5 });
  const ends = await serveAll(streams, cut, leaveAtFirstPiece);
  for (const { name, charge } of ends)
    expect(charge, name).toMatchObject({ status: "cancelled", estimated: true });
  const times = streams.length + ways.length;
  const refused = answerOnceAsked(times, { error: { status: 503 } });
  const free = await serveAll(ways, refused, leaveOnceAsked(times));
  for (const { name, call } of free) expect([call.meter.settled, call.meter.released], name).toEqual([[], 1]);
});

test("a request that did not go out wholly is free", async () => {
  // Takes the connection and reads nothing.
  const deaf = createServer((socket) => {
    socket.on("error", () => {});
    socket.pause();
  });
  await once(deaf.listen(0, "127.0.0.1"), "listening");
  const { port } = deaf.address() as AddressInfo;
  await Promise.all(
    ways
      .filter(({ stream, client }) => !stream && client === "chat")
      .map(async (way) => {
        const filler = "word ".repeat(3_000_000);
        const content =
          way.client === "responses" ? { input: filler } : { messages: [{ role: "user", content: filler }] };
        const call = callOn(`http://127.0.0.1:${port}`, way, { body: content });
        const served = serve(call);
        await expect.poll(() => call.summary.tries, { timeout: 10_000 }).toBe(1);
        setTimeout(() => call.sink.leave(), 300);
        await served;
        expect([call.meter.settled, call.meter.released], nameOf(way)).toEqual([[], 1]);
      }),
  );
  deaf.close();
});

test("one that nobody was asked for is free", async () => {
  const ends = await serveAll(ways, text("never asked for"), (call) => call.sink.leave());
  expect(fake.requests).toHaveLength(0);
  for (const { call } of ends) expect(call.meter.settled).toEqual([]);
});

const loops = ways.filter(({ path }) => path === "tools");
const call = (usage: object) => {
  const step = toolCall("web_search", { query: "x" }) as { answer: object & { parts: [] } };
  return { answer: { ...step.answer, usage } };
};

test("a client that leaves while a tool runs pays the iterations before, and no other is asked", async () => {
  for (const way of loops) {
    fake.reset();
    fake.next(call({ input: 30, output: 7 }));
    const leaving = callOn(fake.url, way, long);
    searching = async () => leaving.sink.leave();
    await serve(leaving);
    searching = null;
    expect(leaving.meter.settled, nameOf(way)).toMatchObject([
      { status: "cancelled", iterations: 1, tokens: { input: 30, output: 7 }, tools: { webSearches: 0 } },
    ]);
    expect(fake.requests).toHaveLength(1);
  }
});

test("a client that leaves a later iteration pays what it reports too", async () => {
  const steps: readonly Step[] = [
    call({ input: 30, output: 7 }),
    withFaults(text("one two three", { input: 60, output: 500 }), { delayHeadersMs: 200 }),
  ];
  for (const way of loops) {
    fake.reset();
    fake.next(...steps);
    const leaving = callOn(fake.url, way, limited(way.client));
    const served = serve(leaving);
    await fake.arrived(2);
    leaving.sink.leave();
    await served;
    expect(leaving.meter.settled, nameOf(way)).toMatchObject([
      {
        status: "cancelled",
        iterations: 2,
        estimated: false,
        tokens: { input: 90, output: 507 },
        tools: { webSearches: 1 },
      },
    ]);
  }
});

test("a later iteration that never began costs its prompt besides", async () => {
  searching = null;
  const leave = leaveOnceAsked(2 * loops.length);
  await Promise.all(
    loops.map(async (way, index) => {
      const model = `m${index}`;
      fake.model(model, [call({ input: 30, output: 7 }), withFaults(text("x"), { hang: true })]);
      const leaving = callOn(fake.url, way, { ...long, upstream: { model } });
      leave(leaving);
      await serve(leaving);
      const [charge] = leaving.meter.settled as [FinalUsage];
      expect(charge, nameOf(way)).toMatchObject({ status: "cancelled", iterations: 2, estimated: true });
      expect(charge.tokens.input, nameOf(way)).toBeGreaterThan(40);
      expect(charge.tools.webSearches).toBe(1);
    }),
  );
});
