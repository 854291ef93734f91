import { expect, test } from "vitest";
import { WorkerPool, WorkNotDone, type WorkerPoolLimits } from "./worker-pool.ts";

/** Answers each message after so many milliseconds of work; "die", "hang" and "grow" do that. */
const program = `
  const { parentPort } = require("node:worker_threads");
  parentPort.on("message", ({ say, ms }) => {
    if (say === "die") process.exit(1);
    if (say === "throw") throw new Error("a fault");
    const end = performance.now() + (say === "hang" ? 1e9 : ms);
    while (performance.now() < end);
    parentPort.postMessage({ result: say, heapMiB: say === "grown" ? 1000 : 1 });
  });
`;
const file = new URL(
  `data:text/javascript,import { createRequire } from "node:module"; const require = createRequire("/"); ${encodeURIComponent(program)}`,
);

function poolOf(more: Partial<WorkerPoolLimits> = {}) {
  const limits = {
    workers: 1,
    heapMiB: 64,
    retireMiB: 500,
    jobMs: 5_000,
    graceMs: 250,
    waitMs: 30_000,
    waiting: 50,
    waitingOfOne: 20,
    ...more,
  };
  const pool = new WorkerPool(file, null, limits);
  const nobodyLeaves = new AbortController().signal;
  const order: string[] = [];
  return {
    pool,
    order,
    run: (owner: string, say: string, ms = 1, signal = nobodyLeaves, isOwed = false): Promise<unknown> =>
      pool
        .run(owner, () => ({ message: { say, ms }, transfer: [] }), signal, isOwed)
        .then(
          (result) => (order.push(`${owner} ${say}`), result),
          (error: unknown) => (error instanceof WorkNotDone ? error.reason : error),
        ),
    [Symbol.asyncDispose]: () => pool.close(),
  };
}

test("owners take turns, whoever has many waiting", async () => {
  await using world = poolOf();
  const first = world.run("a", "0", 100);
  const rest = [
    ...Array.from({ length: 6 }, (_, index) => world.run("a", String(index + 1))),
    world.run("b", "x"),
    world.run("c", "y"),
    world.run("b", "z"),
  ];
  await Promise.all([first, ...rest]);
  expect(world.order.slice(0, 6)).toEqual(["a 0", "b x", "c y", "a 1", "b z", "a 2"]);
});

test.each(["die", "throw", "hang"])(
  "a job that makes its worker %s is broken, the next one is done",
  async (say) => {
    await using world = poolOf({ jobMs: 2_000 });
    expect(await world.run("a", "warm")).toBe("warm");
    const broken = world.run("a", say);
    const next = world.run("b", "next");
    expect(await broken).toBe("broken");
    expect(await next).toBe("next");
  },
);

test("a worker that has grown is replaced", async () => {
  await using world = poolOf();
  expect(await world.run("a", "grown")).toBe("grown");
  expect(await world.run("a", "after")).toBe("after");
});

test("so many may wait, of all and of one", async () => {
  await using world = poolOf({ waiting: 3, waitingOfOne: 2 });
  const under = world.run("a", "0", 50);
  const waiting = [world.run("a", "1"), world.run("a", "2")];
  expect(await world.run("a", "3")).toBe("busy_owner");
  waiting.push(world.run("b", "1"), world.run("c", "1"));
  // Of a the last makes room for c; then everybody has one.
  expect(await waiting[1]).toBe("busy_owner");
  expect(await world.run("d", "1")).toBe("busy");
  expect(await Promise.all([under, ...waiting])).toEqual(["0", "1", "busy_owner", "1", "1"]);
});

test("nobody waits for ever", async () => {
  await using world = poolOf({ waitMs: 200 });
  const under = world.run("a", "0", 1_000);
  expect(await Promise.all([world.run("a", "1"), world.run("b", "1")])).toEqual(["busy", "busy"]);
  expect(await under).toBe("0");
  // Its own time is another.
  expect(await world.run("a", "2", 500)).toBe("2");
});

test("what is owed is done however many wait, in its owner's turn", async () => {
  await using world = poolOf({ waiting: 2, waitingOfOne: 1, waitMs: 100 });
  const owed = (owner: string, say: string) => world.run(owner, say, 1, undefined, true);
  const under = world.run("a", "0", 600);
  const waiting = [owed("a", "1"), owed("a", "2"), owed("a", "3"), owed("b", "x")];
  expect(await world.run("a", "4")).toBe("busy_owner");
  await Promise.all([under, ...waiting]);
  expect(world.order).toEqual(["a 0", "b x", "a 1", "a 2", "a 3"]);
});

test("a worker that is dear to replace ends its job, whoever has left", async () => {
  await using world = poolOf({ graceMs: 5_000 });
  const gone = new AbortController();
  const under = world.run("a", "0", 600, gone.signal);
  const next = world.run("b", "1");
  setTimeout(() => gone.abort(), 100);
  expect(await under).toBe("0");
  expect(await next).toBe("1");
});

test("whoever leaves gives up the place, and their worker when it takes long", async () => {
  await using world = poolOf();
  const [running, waiting] = [new AbortController(), new AbortController()];
  const hang = world.run("a", "hang", 1, running.signal);
  const queued = world.run("a", "queued", 1, waiting.signal);
  const other = world.run("b", "other");
  waiting.abort();
  expect(await queued).toBe("cancelled");
  running.abort();
  expect(await hang).toBe("cancelled");
  expect(await other).toBe("other");
  expect(await world.run("c", "gone", 1, AbortSignal.abort())).toBe("cancelled");
  expect(world.order).toEqual(["b other"]);
});

test("closing ends what waits and what runs", async () => {
  const world = poolOf();
  const jobs = [world.run("a", "hang"), world.run("a", "waits")];
  await world.pool.close();
  expect(await Promise.all(jobs)).toEqual(["cancelled", "cancelled"]);
  expect(await world.run("a", "late")).toBe("cancelled");
});
