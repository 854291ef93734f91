import fc from "fast-check";
import { once } from "node:events";
import { connect, Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { runs } from "../../test/fakes/runs.ts";
import { startTestServer, statusOn, upload } from "../../test/fakes/test-server.ts";
import { ApiError } from "../lib/api-error.ts";
import { limits } from "./limits.ts";
import { type ReadPlace, ReadTurns } from "./read-turns.ts";
import { inferenceRoutes } from "./routes/inference.ts";

const MiB = 1024 * 1024;
const meter = { open: () => Promise.reject(new Error("not metered here")) };

/** A line in which one waits for about an eighth of a second before the first turn, and has one turn at a time. */
async function slowTurns() {
  const turns = new ReadTurns(8 * MiB);
  // Nobody waits yet: the first 64 KiB are there at once. What costs more keeps the next from that, however slow this machine is.
  await turns.turn(turns.place("first"));
  turns.spend(MiB);
  return turns;
}

test("what is read from elsewhere than a connection takes its turn in the same line", async () => {
  const order: ReadPlace[] = [];
  const started = performance.now();
  const turns = await slowTurns();
  const places = Array.from({ length: 64 }, () => turns.place("a"));
  await Promise.all(places.toReversed().map((place) => turns.turn(place).then(() => order.push(place))));
  // Whoever has the earlier place, although it asked later.
  expect(order).toEqual(places);
  // Five MiB at eight a second; a tick may give out one turn more than is left of its share.
  expect(performance.now() - started).toBeGreaterThan(150);
});

test("owners take turns, each with its earliest, which is read to its end", async () => {
  const turns = await slowTurns();
  let order = "";
  const read = async (name: string) => {
    const place = turns.place(name.charAt(0));
    for (let piece = 0; piece < 3; piece += 1) {
      await turns.turn(place);
      order += `${name} `;
    }
    turns.end(place);
  };
  await Promise.all(["a1", "a2", "a3", "b1", "c1", "c2"].map(read));
  const inOrder = ["a1", "b1", "c1", "a2", "c2", "a3"];
  expect(order).toBe(inOrder.map((name) => `${name} `.repeat(3)).join(""));
});

test("what waits of an owner while its earliest has nothing to read goes on meanwhile", async () => {
  const turns = await slowTurns();
  const order: string[] = [];
  const [slow, quick] = [turns.place("a"), turns.place("a")];
  const take = async (name: string, place: ReadPlace) => {
    await turns.turn(place);
    order.push(name);
  };
  await take("slow", slow);
  await Promise.all([take("quick", quick), take("other", turns.place("b"))]);
  await Promise.all([take("quick", quick), take("slow", slow)]);
  expect(order).toEqual(["slow", "quick", "other", "slow", "quick"]);
});

/** What a reader does at its first wait, beside waiting for its turn. */
const asides = fc.constantFrom("nothing", "end", "leave", "destroy");
const readers = fc.array(
  fc.record({
    owner: fc.constantFrom("a", "b", "c"),
    source: fc.constantFrom("other", "connection", "once"),
    waits: fc.integer({ min: 1, max: 4 }),
    aside: asides,
  }),
  { minLength: 1, maxLength: 12 },
);

test("whoever waits has its turn, and nobody is remembered afterwards, whatever ends meanwhile", async () => {
  await fc.assert(
    fc.asyncProperty(readers, async (list) => {
      const turns = new ReadTurns(1024 * MiB);
      await turns.turn(turns.place("first"));
      turns.spend(8 * MiB);
      await Promise.all(
        list.map(async ({ owner, source, waits, aside }) => {
          const place = turns.place(owner);
          const socket = new Socket();
          for (let wait = 0; wait < waits; wait += 1) {
            const turn = source === "other" ? turns.turn(place) : undefined;
            if (turn === undefined) turns.wait(socket, source === "once" ? undefined : place);
            if (wait === 0 && aside === "end") turns.end(place);
            if (wait === 0 && aside === "leave") turns.leave(socket);
            if (wait === 0 && aside === "destroy") socket.destroy();
            await turn;
            while (turns.isWaiting(socket)) await sleep(1);
          }
          turns.end(place);
        }),
      );
      expect(turns.owners).toBe(0);
    }),
    { numRuns: runs(200) },
  );
});

test("a connection goes on after a refused body of usual length", async () => {
  await using server = await startTestServer([
    inferenceRoutes({ meter, serve: () => Promise.reject(new ApiError("insufficient_credit", "no")) }),
  ]);
  const socket = upload(server.port, "/v1/messages", limits.inferenceBodyBytes + 2 * MiB);
  expect(await statusOn(socket)).toBe("413");
  await expect
    .poll(() => [...server.server.connections][0]?.bytesRead, { timeout: 10_000 })
    .toBeGreaterThan(limits.inferenceBodyBytes + 2 * MiB);
  socket.write("GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n");
  let more = "";
  socket.on("data", (chunk) => (more += chunk.toString("latin1")));
  await expect.poll(() => more).toMatch(/HTTP\/1\.1 404/);
  socket.destroy();
});

test("more requests than may wait for their answers end the connection; others get all of theirs", async () => {
  await using server = await startTestServer([]);
  const ask = async (times: number) => {
    const socket = connect(server.port, "127.0.0.1").on("error", () => {});
    let answers = "";
    let closed = false;
    socket.on("data", (bytes) => (answers += bytes.toString("latin1")));
    socket.on("close", () => (closed = true));
    socket.write("GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n".repeat(times));
    const count = () => answers.split("HTTP/1.1 404").length - 1;
    await expect.poll(() => closed || count() === times).toBe(true);
    socket.destroy();
    return { closed, logged: server.logged.length };
  };
  expect(await ask(limits.pipelined)).toEqual({ closed: false, logged: limits.pipelined });
  const { closed, logged } = await ask(1_000);
  expect(closed).toBe(true);
  expect(logged).toBeLessThanOrEqual(2 * limits.pipelined + 1);
});

test("a connection outlives any number of refused bodies that come after their answers", async () => {
  await using server = await startTestServer([]);
  const socket = connect(server.port, "127.0.0.1")
    .setNoDelay()
    .on("error", () => {});
  let answers = "";
  socket.on("data", (bytes) => (answers += bytes.toString("latin1")));
  const count = () => answers.split("HTTP/1.1 404").length - 1;
  for (let sent = 1; sent <= limits.lingering + 10; sent += 1) {
    socket.write("POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n");
    while (count() < sent && !socket.destroyed)
      await Promise.race([once(socket, "data"), once(socket, "close")]);
    socket.write("{}");
  }
  expect(socket.destroyed).toBe(false);
  socket.destroy();
});
