/** The validators can fail: a legal stream with one piece missing, doubled or moved is not legal any more. */
import { describe, expect, test } from "vitest";
import { dialects } from "../../dataplane/dialects/dialect.ts";
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import { convertStream, eventsOf, faultsOf, testCarry } from "./convert.ts";
import { scriptedStream } from "./scripted-answer.ts";
import type { ScriptedAnswer } from "./scripted-answer.ts";

const answer: ScriptedAnswer = {
  blocks: [
    { kind: "thinking", text: "Hm.", opaque: "opaque==" },
    { kind: "text", text: "Look:" },
    { kind: "tool", id: "call_1", name: "look", input: { at: "it" } },
    { kind: "tool", id: "call_2", name: "look", input: { at: "that" } },
  ],
  stop: "tools",
  usage: { input: 10, cached: 0, output: 5 },
};
const carryFor = (dialect: Dialect) => testCarry(dialect, { stream_options: { include_usage: true } });

function legal(dialect: Dialect): string[] {
  const halves = (text: string) => [text.slice(0, 2), text.slice(2)];
  const events = eventsOf(scriptedStream.messages(answer, halves));
  const { bytes, terminal } = convertStream("messages", events, carryFor(dialect));
  return (bytes + terminal).split(/(?<=\n\n)/);
}

/** A delta of text leaves no trace when it is lost, and not every upstream signs. Responses says everything twice. */
const leavesNoTrace = (event: string) =>
  /"(text_delta|thinking_delta|signature_delta)"|"(content|reasoning_content)":/.test(event);

describe.each(dialects)("the %s grammar", (dialect) => {
  const events = legal(dialect);
  const faults = (changed: readonly string[]) => faultsOf(changed.join(""), carryFor(dialect), "end");

  test("takes a legal stream", () => {
    expect(faults(events)).toEqual([]);
  });

  test("misses each event that is left out", () => {
    const unnoticed = events.filter(
      (event, index) =>
        !(leavesNoTrace(event) && index > 0) && faults(events.toSpliced(index, 1)).length === 0,
    );
    expect(unnoticed).toEqual([]);
  });

  test("sees each event that comes twice", () => {
    const unnoticed = events.filter(
      (event, index) => !leavesNoTrace(event) && faults(events.toSpliced(index, 0, event)).length === 0,
    );
    expect(unnoticed).toEqual([]);
  });

  test("sees each event that changes places with the next one of another kind", () => {
    const unnoticed = events.slice(0, -1).filter((event, index) => {
      const next = events[index + 1] ?? "";
      const swapped = events.toSpliced(index, 2, next, event);
      // Chat does not say where text ends, so that its place among the calls is free.
      const isFree =
        dialect === "chat"
          ? leavesNoTrace(event) || leavesNoTrace(next)
          : leavesNoTrace(event) && leavesNoTrace(next);
      return !isFree && faults(swapped).length === 0;
    });
    expect(unnoticed).toEqual([]);
  });

  test("sees a stream that ends early, anywhere", () => {
    const unnoticed = events.filter((_, index) => faults(events.slice(0, index)).length === 0);
    expect(unnoticed).toEqual([]);
  });
});
