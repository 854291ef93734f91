import { expect, test } from "vitest";
import { ApiError } from "../lib/api-error.ts";
import { longestHoldMs } from "../../test/fakes/large/watch-loop.ts";
import { erroredLine, neverRunLine, succeededLine } from "./lines.ts";

/** What Python's `splitlines` and readers like it take for the end of a line. */
const anyEnd = /\r\n|[\n\r\v\f\x85\u2028\u2029]/;
const odd = "a\u2028b\u2029c\u0085d\\e é😀";
const customId = JSON.stringify(odd);
const item = { customId, requestId: "req_1" };
const answer = Buffer.from(
  JSON.stringify({ text: odd, [odd]: 1, n: 0 }, null, 2)
    .replace("0", "12345678901234567890")
    .replaceAll("\n", "\r\n"),
);

test.each(["messages", "openai"] as const)(
  "%s: a line has one end, however lines are told apart",
  async (form) => {
    const error = new ApiError("invalid_request", `no ${odd}`);
    const lines = [
      await succeededLine(form, item, answer),
      erroredLine(form, item, error),
      neverRunLine(form, { ...item, state: "canceled" }),
      neverRunLine(form, { ...item, state: "expired" }),
    ].map(String);
    for (const line of lines) {
      expect(line.split(anyEnd)).toEqual([line.slice(0, -1), ""]);
      expect(JSON.parse(line)).toMatchObject({ custom_id: odd });
    }
    const [succeeded = "", errored = ""] = lines;
    expect(succeeded).toContain("12345678901234567890");
    expect(JSON.stringify(JSON.parse(succeeded))).toContain(
      JSON.stringify({ text: odd, [odd]: 1 }).slice(0, -1),
    );
    expect(JSON.stringify(JSON.parse(errored))).toContain(JSON.stringify(odd).slice(1, -1));
  },
);

test("bytes that are no such end stay as they are", async () => {
  const text = JSON.stringify({ text: "\u00c2\u0084\u2027\u202a…€" });
  expect(String(await succeededLine("messages", item, Buffer.from(text)))).toContain(text);
});

test.each(["\u2028", "\u0085", "😀\u2028é", "\n", "x\r"])(
  "rule 7.3: a long answer of %j is put on one line in slices, each character whole",
  async (text) => {
    // Each piece's end falls on another byte of a character.
    for (const before of ["", "a", "ab", "abc"]) {
      const long = Buffer.from(`"${before}${text.repeat(300_000)}"`);
      const line = String(await succeededLine("messages", item, long));
      expect(line.split(anyEnd)).toHaveLength(2);
      expect(line).not.toContain("\ufffd");
      const expected = String(long).replaceAll(/[\n\r]/g, " ");
      expect(JSON.parse(line)).toMatchObject({ result: { message: JSON.parse(expected) } });
    }
  },
);

test("rule 7.3: other work runs while a long answer is put on one line", async () => {
  const long = Buffer.from(`"${"\u2028".repeat(3_000_000)}"`);
  // Whatever else a turn was busy with in one of these tries.
  const held: number[] = [];
  for (let tries = 0; tries < 3; tries += 1)
    held.push(await longestHoldMs(() => succeededLine("messages", item, long)));
  expect(Math.min(...held)).toBeLessThan(40);
});
