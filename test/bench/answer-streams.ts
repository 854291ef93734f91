/**
 * CPU time of one converted stream event, for each cell: JSON in, ready bytes out, framing not counted.
 * `node hack/ensure.mjs test/bench/answer-streams.ts`; the goal is 1.3 µs, 2.5 µs at the most (part 6).
 */
import { answerCodecs } from "../../dataplane/dialects/answer-codecs.ts";
import { dialects } from "../../dataplane/dialects/dialect.ts";
import type { SseEvent } from "../../dataplane/dialects/codecs.ts";
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import { writeEvents } from "../../dataplane/dialects/write-events.ts";
import { eventsOf, testCarry, testContext } from "../grammar/convert.ts";
import { scriptedStream } from "../grammar/scripted-answer.ts";

const DELTAS = 400;
const ROUNDS = 400;
const WARM_UP = 100;

/** An ordinary answer: many short pieces of text. */
function script(from: Dialect): SseEvent[] {
  const words = Array.from({ length: DELTAS }, (_, index) =>
    index % 9 === 8 ? " word.\n" : ` word${index % 10}`,
  );
  const text = words.join("");
  return eventsOf(
    scriptedStream[from](
      { blocks: [{ kind: "text", text }], stop: "end", usage: { input: 100, cached: 0, output: DELTAS } },
      (whole) => (whole === text ? words : [whole]),
    ),
  );
}

let written = 0;

function convert(from: Dialect, to: Dialect, events: readonly SseEvent[]): void {
  const context = testContext();
  const reader = answerCodecs[from].readStream(context);
  const writer = answerCodecs[to].writeStream(testCarry(to), context);
  for (const event of events) {
    const { bytes, terminal } = writeEvents(writer, reader.step(event));
    written += bytes.length + terminal.length;
  }
  reader.end({ kind: "eof" });
}

console.log("µs of CPU per converted event");
for (const from of dialects)
  for (const to of dialects) {
    const events = script(from);
    for (let round = 0; round < WARM_UP; round += 1) convert(from, to, events);
    const start = process.cpuUsage();
    for (let round = 0; round < ROUNDS; round += 1) convert(from, to, events);
    const { user, system } = process.cpuUsage(start);
    const each = (user + system) / (ROUNDS * events.length);
    console.log(`${from.padEnd(9)} → ${to.padEnd(9)} ${each.toFixed(2)}`);
  }
if (written === 0) throw new Error("nothing was written");
