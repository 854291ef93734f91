import { expect, test } from "vitest";
import { testCarry, testContext } from "../../test/grammar/convert.ts";
import { codecs } from "./registry.ts";

test.each([
  ["messages", 'event: ping\ndata: {"type":"ping"}\n\n'],
  ["chat", ": ping\n\n"],
  ["responses", ": ping\n\n"],
] as const)("while a tool runs: an event in Messages, a comment elsewhere (%s)", (dialect, ping) => {
  const writer = codecs[dialect].writeStream(testCarry(dialect), testContext());
  expect(writer.write({ type: "ping" })).toBe(ping);
});
