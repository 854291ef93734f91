/** What reads an answer and fails is a bug of ours: it costs that answer, says nothing of its upstream, and hangs nobody. */
import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, onTestFinished, test, vi } from "vitest";
import type { UpstreamAnswer } from "../../upstream/request.ts";
import type { CallFault, UpstreamCall } from "../../upstream/send.ts";
import { ByteBudget } from "../../lib/byte-budget.ts";
import { SseOverflow } from "../../lib/sse.ts";
import { ROOM_MS, WorkTurns } from "../../lib/work-turns.ts";
import { ResponseStream, type StreamConsumer, type StreamTranslator } from "./response-stream.ts";
import { streamTurns } from "./stream-turns.ts";

const usage = { input_tokens: 3, output_tokens: 4 };
const bug = new TypeError("undefined is not a function");

/** Passes the first chunk on and observes it, ends the answer with a third; fails where a test says. */
function stream(
  fails: (what: "push" | "end" | "endEarly" | "usage", chunks: number) => boolean,
  work: () => void = () => {},
  to: Partial<StreamConsumer<string>> = {},
  owner = streamTurns.owner("org_a"),
  held: { readonly bytes: number; readonly end: string | null } = { bytes: 0, end: null },
) {
  let chunks = 0;
  let unread = 0;
  const check = (what: Parameters<typeof fails>[0]) => {
    if (fails(what, chunks)) throw bug;
  };
  const translator = (of: ResponseStream<string>): StreamTranslator<string> => ({
    add: (more) => void (unread += more.length),
    get hasUnread() {
      return unread > 0;
    },
    heldBytes: held.bytes,
    read: () => {
      unread -= 1;
      chunks += 1;
      work();
      check("push");
      if (chunks === 1) of.open();
      if (chunks === 3) of.finish("last");
      else of.pass("begun");
    },
    end: () => {
      check("end");
      return null;
    },
    endEarly: () => {
      check("endEarly");
      return held.end;
    },
    get usage() {
      check("usage");
      return usage;
    },
    isFree: false,
    awaitsReport: false,
  });
  const abort = vi.fn((fault: CallFault) => reading.fail(fault));
  const broke = vi.fn();
  const flow = { pause: vi.fn(), resume: vi.fn(), linger: vi.fn() };
  const call = { abort, read: vi.fn(), ...flow, sent: true, received: 10 } as unknown as UpstreamCall;
  const answer = { call, accepted: vi.fn(), broke } as unknown as UpstreamAnswer;
  const told: unknown[] = [];
  const reading: ResponseStream<string> = new ResponseStream<string>(
    answer,
    {
      dialect: "chat",
      begin: () => {},
      take: (out) => told.push(out) > 0,
      drained: () => Promise.resolve(),
      observe: () => {},
      complete: async (last) => void told.push(last),
      abandon: async (error, _fault, owed) => void told.push(error.code, owed),
      misread: async (cause, owed) => void told.push(cause, owed),
      ...to,
    },
    owner,
    bodies.lease("org_a"),
    translator,
  );
  return { reading, told, abort, broke, flow, over: reading.run() };
}
const a = [Buffer.from("a")];
/** Others hold all that there is room for. */
const bodies = new ByteBudget(1024);
bodies.lease("org_other").take(1024);

/** This thread has a processor all the time, which `now` tells. */
function clockOf(now: () => number) {
  const spies = [
    vi.spyOn(performance, "now").mockImplementation(now),
    vi.spyOn(process, "threadCpuUsage").mockImplementation(() => ({ user: now() * 1000, system: 0 })),
  ];
  return { mockRestore: () => spies.forEach((spy) => spy.mockRestore()) };
}

test("before the first event it is thrown on", async () => {
  const { reading, told, abort, broke, over } = stream((what) => what === "push");
  reading.data(a);
  await expect(over).rejects.toBe(bug);
  expect(told).toEqual([]);
  expect(abort).toHaveBeenCalledExactlyOnceWith("cancelled");
  expect(broke).not.toHaveBeenCalled();
});

test.each<[string, Parameters<typeof stream>[0], (reading: ResponseStream<string>) => void]>([
  ["in an event", (what, chunks) => what === "push" && chunks === 2, (reading) => reading.data(a)],
  ["at the end", (what) => what === "end", (reading) => reading.end()],
  [
    "in the usage of a complete one",
    (what, chunks) => what === "usage" && chunks > 1,
    (reading) => {
      reading.data(a);
      reading.data(a);
    },
  ],
  [
    "in the usage of one that broke off",
    (what, chunks) => what === "usage" && chunks > 1,
    (reading) => {
      reading.data(a);
      reading.end();
    },
  ],
  ["when it breaks off", (what) => what === "endEarly", (reading) => reading.fail("idle")],
])("%s it is told once, with what was used when that could be read last", async (_where, fails, breaks) => {
  const { reading, told, over } = stream(fails);
  reading.data(a);
  breaks(reading);
  reading.fail("cancelled");
  reading.end();
  await over;
  expect(told.filter((one) => one !== "begun")).toEqual([bug, usage]);
});

test("behind a complete answer it changes nothing", async () => {
  const { reading, told, over } = stream((what, chunks) => what === "push" && chunks === 4);
  for (let chunk = 0; chunk < 4; chunk += 1) reading.data(a);
  await over;
  expect(told).toEqual(["begun", "begun", "last"]);
});

test.each([
  ["one that is complete ends as it should", "last", ["begun", "last"]],
  ["any other breaks off", null, ["begun", "unavailable", usage]],
])("rule 7.2: without room for what is held, %s", async (_, end, said) => {
  const held = { bytes: 1024 * 1024, end };
  const { reading, told, broke, over } = stream(() => false, undefined, {}, undefined, held);
  reading.data(a);
  await over;
  expect(told).toEqual(said);
  expect(broke).toHaveBeenCalledTimes(end === null ? 1 : 0);
  expect(bodies.used).toBe(1024);
});

test("rule 7.3: others have their turn before more is read of an answer that takes long to read", async () => {
  let now = 0;
  const clock = clockOf(() => now);
  const work = () => void (now += 3);
  const { reading, flow } = stream(() => false, work);
  reading.data(a);
  expect(flow.pause).not.toHaveBeenCalled();
  reading.data(a);
  expect(flow.pause).toHaveBeenCalledOnce();
  expect(flow.resume).not.toHaveBeenCalled();
  clock.mockRestore();
  await nextTurn();
  expect(flow.resume).toHaveBeenCalledOnce();
});

test("and the reader has caught up, where it falls behind before that turn", async () => {
  let now = 0;
  const clock = clockOf(() => now);
  let taken = 0;
  const caughtUp = Promise.withResolvers<void>();
  const { reading, flow } = stream(
    () => false,
    () => void (now += ROOM_MS + 1),
    { take: () => (taken += 1) < 2, drained: () => caughtUp.promise },
  );
  reading.data(a);
  reading.data(a);
  clock.mockRestore();
  await nextTurn();
  await nextTurn();
  expect(flow.resume).not.toHaveBeenCalled();
  caughtUp.resolve();
  await nextTurn();
  expect(flow.resume).toHaveBeenCalledOnce();
});

/** A stream of which each chunk takes more than a turn of the loop has room for, on a loop that turns when it is told to. */
function slow(to: Partial<StreamConsumer<string>> = {}) {
  let now = 0;
  let due: (() => void)[] = [];
  const clock = clockOf(() => now);
  onTestFinished(() => clock.mockRestore());
  const turns = new WorkTurns({
    clock: { now: () => now },
    workedMs: () => now,
    afterTurn: (call) => void due.push(call),
  });
  const turn = () => {
    const calls = due;
    due = [];
    for (const call of calls) call();
  };
  const owner = turns.owner("org_a");
  return {
    turn,
    owner,
    ...stream(
      () => false,
      () => void (now += ROOM_MS + 1),
      to,
      owner,
    ),
  };
}
const three = [Buffer.from("a"), Buffer.from("b"), Buffer.from("c")];

test("of a packet so much is read that others have their turn, and the rest in turns of its own", async () => {
  const { reading, told, flow, turn, over } = slow();
  reading.data(three);
  expect(told).toEqual(["begun"]);
  expect(flow.pause).toHaveBeenCalledOnce();
  turn();
  expect(told).toEqual(["begun", "begun"]);
  expect(flow.resume).not.toHaveBeenCalled();
  turn();
  await over;
  expect(told).toEqual(["begun", "begun", "last"]);
});

test("what comes while it waits is kept, and read behind what came before", () => {
  const { reading, told, flow, turn } = slow();
  reading.data(a);
  reading.data(a);
  expect(told).toEqual(["begun"]);
  for (let turns = 0; turns < 4; turns += 1) turn();
  expect(told).toEqual(["begun", "begun"]);
  expect(flow.resume).toHaveBeenCalledOnce();
});

test.each<[string, (reading: ResponseStream<string>) => void]>([
  ["ends", (reading) => reading.end()],
  ["breaks off", (reading) => reading.fail("cut")],
  ["stands still", (reading) => reading.fail("idle")],
])("what came before its upstream %s is read before that is told", async (_how, ends) => {
  const { reading, told, turn, over } = slow();
  reading.data(three);
  ends(reading);
  expect(told).toEqual(["begun"]);
  for (let turns = 0; turns < 6; turns += 1) turn();
  await over;
  expect(told).toEqual(["begun", "begun", "last"]);
});

test("one whose client left while it waits comes to its end before others, and waits for no reader", async () => {
  const never = new Promise<void>(() => {});
  const { reading, told, turn, over, owner } = slow({
    take: (out) => {
      told.push(out);
      return false;
    },
    drained: () => never,
  });
  let others = 0;
  reading.data(three.slice(0, 2));
  owner.wait({ turn: () => void (others += 1) });
  reading.fail("cancelled");
  for (let turns = 0; !reading.isOver && turns < 3; turns += 1) turn();
  await over;
  expect(others).toBe(0);
  expect(told).toEqual(["begun", "begun", "upstream_error", usage]);
});

test("one that waits with nothing to read ends at once", async () => {
  const { reading, told, turn, over } = slow();
  reading.data(a);
  reading.fail("cancelled");
  await over;
  expect(told).toEqual(["begun", "upstream_error", usage]);
  for (let turns = 0; turns < 3; turns += 1) turn();
});

test.each([
  ["more than is kept", (reading: ResponseStream<string>) => reading.overflow()],
  ["what nobody wants", (reading: ResponseStream<string>) => reading.discard()],
])("%s is not read to the end of the answer", async (_what, ends) => {
  const { reading, told, over } = slow();
  reading.data(three);
  ends(reading);
  await over;
  expect(told.filter((one) => one === "begun")).toHaveLength(1);
  expect(told).not.toContain("last");
});

test.each([
  ["more than is kept", (reading: ResponseStream<string>) => reading.overflow()],
  [
    "an event that is too long",
    () => {
      throw new SseOverflow();
    },
  ],
] as const)("%s ends an answer whose upstream has ended already", async (_what, meets) => {
  const { reading, told, abort, turn, over } = slow({
    take: (out) => {
      if (told.push(out) === 2) meets(reading);
      return true;
    },
  });
  // The call is over: to abort it changes nothing.
  abort.mockImplementation(() => {});
  reading.data(three);
  reading.end();
  for (let turns = 0; turns < 6; turns += 1) turn();
  await over;
  expect(told).toEqual(["begun", "begun", "upstream_error", usage]);
});

test("rule 7.3: while others have the processor, no time of a stream's goes by", () => {
  let now = 0;
  const clock = vi.spyOn(performance, "now").mockImplementation(() => now);
  onTestFinished(() => clock.mockRestore());
  const { reading, told, flow } = stream(
    () => false,
    () => void (now += 1_000),
    {},
    streamTurns.owner("org_b"),
  );
  reading.data(three.slice(0, 2));
  expect(told).toEqual(["begun", "begun"]);
  expect(flow.pause).not.toHaveBeenCalled();
});
