/** Calls that an upstream gives one id stay apart, or no client could send their results back. */
import { expect, test } from "vitest";
import { convertStream, convertWhole, eventsOf, testCarry } from "../../test/grammar/convert.ts";
import {
  scriptedBody,
  scriptedStream,
  uncut,
  type ScriptedBlock,
} from "../../test/grammar/scripted-answer.ts";
import { dialects } from "./dialect.ts";

const call = (id: string): ScriptedBlock => ({ kind: "tool", id, name: "look_up", input: {} });
const answer = {
  blocks: [call("one"), call("same"), call("same")],
  stop: "tools",
  usage: { input: 60, cached: 0, output: 9 },
} as const;
const others = dialects.flatMap((from) =>
  (["messages", "chat"] as const).flatMap((to) => (from === to ? [] : [[from, to] as const])),
);
const idsIn = (text: string) => [
  ...new Set([...text.matchAll(/"id": ?"((?:one|same|call_|toolu_)[^"]*)"/g)].map(([, id]) => id)),
];

test.each(others)("rule 2.8: calls of one answer from %s to %s have ids of their own", (from, to) => {
  const whole = convertWhole(from, scriptedBody[from](answer), testCarry(to));
  expect(idsIn(JSON.stringify(whole))).toEqual(["one", "same", expect.stringMatching(/^(call|toolu)_/)]);
  const streamed = convertStream(from, eventsOf(scriptedStream[from](answer, uncut)), testCarry(to));
  expect(streamed.error).toBeNull();
  expect(idsIn(streamed.bytes)).toEqual(["one", "same", expect.stringMatching(/^(call|toolu)_/)]);
});
