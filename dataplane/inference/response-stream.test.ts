/** What reads an answer and fails is a bug of ours: it costs that answer, and says nothing of its upstream. */
import { expect, test, vi } from "vitest";
import type { UpstreamAnswer } from "../upstream/request.ts";
import type { UpstreamCall } from "../upstream/send.ts";
import { ResponseStream, type StreamTranslator } from "./response-stream.ts";

const usage = { input_tokens: 3, output_tokens: 4 };
const bug = new TypeError("undefined is not a function");

/** Passes the first chunk on; then fails where a test says. */
function stream(fails: "first" | "second" | "end") {
  let chunks = 0;
  const translator = (of: ResponseStream<string>): StreamTranslator<string> => ({
    push: () => {
      chunks += 1;
      if (fails === (chunks === 1 ? "first" : "second")) throw bug;
      of.open();
      of.pass("begun");
    },
    end: () => {
      throw bug;
    },
    endEarly: () => null,
    usage,
  });
  const [abort, broke] = [vi.fn(), vi.fn()];
  const call = { abort, read: vi.fn(), sent: true, received: 10 } as unknown as UpstreamCall;
  const answer = { call, accepted: vi.fn(), broke } as unknown as UpstreamAnswer;
  const told: unknown[] = [];
  const reading = new ResponseStream<string>(
    answer,
    {
      dialect: "chat",
      begin: () => {},
      take: (out) => told.push(out) > 0,
      drained: () => Promise.resolve(),
      observe: () => {},
      complete: () => Promise.reject(new Error("it is not complete")),
      abandon: async (error, _fault, owed) => void told.push(error.code, owed),
    },
    translator,
  );
  return { reading, told, abort, broke, over: reading.run() };
}

test("before the first event it is thrown on", async () => {
  const { reading, told, abort, broke, over } = stream("first");
  reading.data([Buffer.from("a")]);
  await expect(over).rejects.toBe(bug);
  expect(told).toEqual([]);
  expect(abort).toHaveBeenCalledExactlyOnceWith("cancelled");
  expect(broke).not.toHaveBeenCalled();
});

test.each(["second", "end"] as const)("at the %s the client is told, and it is thrown on", async (fails) => {
  const { reading, told, abort, broke, over } = stream(fails);
  reading.data([Buffer.from("a")]);
  if (fails === "second") reading.data([Buffer.from("b")]);
  else reading.end();
  reading.fail("cancelled");
  await expect(over).rejects.toBe(bug);
  expect(told).toEqual(["begun", "internal", usage]);
  expect(abort).toHaveBeenCalledExactlyOnceWith("cancelled");
  expect(broke).not.toHaveBeenCalled();
});
