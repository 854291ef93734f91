/** Streamed answers. */
import { fieldsOf, json } from "../../grammar/sse.ts";
import { accumulated } from "../../grammar/sdk-judges.ts";
import { seenEvent } from "../../vendor/seen.ts";
import type { Check } from "../check.ts";
import { framesIn } from "../frames.ts";
import { counting, hello, scripted } from "../prompts.ts";

/** Data that is not the end mark of Chat. */
const eventsOf = (text: string) =>
  framesIn(text).frames.filter(({ data }) => data !== "" && data !== "[DONE]");

/** Time between two events of the scripted upstream, and what has to pass at least between the first and the last read. */
const PACE_MS = 60;
const PACED_EVENTS = 8;

export const streams: readonly Check[] = [
  {
    name: "stream-type",
    subject: "streams",
    rule: "official",
    says: "A stream comes as `text/event-stream`.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body(counting));
      const type = answer.headers.get("content-type");
      probe.expect(type?.startsWith("text/event-stream") === true, `content-type ${type}`, answer);
    },
  },
  {
    name: "stream-framing",
    subject: "streams",
    rule: "official",
    says: "Each event is JSON, ends in a blank line, and the bytes are UTF-8.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body(counting));
      const { rest } = framesIn(answer.text);
      probe.expect(rest.trim() === "", `the stream stops within an event: ${rest.slice(0, 80)}`, answer);
      probe.expect(!answer.text.includes("\u{FFFD}"), "bytes that are not UTF-8", answer);
      for (const { data } of eventsOf(answer.text))
        probe.expect(json(data) !== undefined, `data that is not JSON: ${data.slice(0, 80)}`, answer);
    },
  },
  {
    name: "stream-events",
    subject: "streams",
    rule: "official",
    says: "Each event fits the type in the vendor's SDK.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body(counting));
      for (const { data } of eventsOf(answer.text))
        for (const { type, value } of seenEvent(probe.form.dialect, fieldsOf(json(data))))
          for (const text of probe.ground.judge(type, value)) probe.fault(text, answer);
    },
  },
  {
    name: "stream-order",
    subject: "streams",
    rule: "official",
    says: "Events come in the order of the vendor's grammar, each once and to the end.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body(counting));
      for (const text of probe.form.orderFaults(framesIn(answer.text).plain))
        if (!probe.form.houseRules.some((rule) => rule.test(text))) probe.fault(text, answer);
    },
  },
  {
    name: "stream-tidy",
    subject: "streams",
    rule: "ours",
    dialects: ["messages", "chat"],
    says: "The stream holds nothing that a strict reader stumbles over: no empty deltas, no role twice, no calls that interleave.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body(counting));
      for (const text of probe.form.orderFaults(framesIn(answer.text).plain))
        if (probe.form.houseRules.some((rule) => rule.test(text))) probe.fault(text, answer);
    },
  },
  {
    name: "stream-sdk",
    subject: "streams",
    rule: "official",
    says: "The vendor's SDK puts the stream together without an error.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body(counting));
      await accumulated[probe.form.dialect](framesIn(answer.text).plain).then(
        (whole) => {
          const { text, stop } = probe.form.said(whole);
          probe.expect(text !== "" || stop === "length", "the SDK finds no text", answer);
        },
        (error: unknown) => probe.fault(`the SDK throws: ${String(error)}`, answer),
      );
    },
  },
  {
    name: "usage-unasked",
    subject: "streams",
    rule: "official",
    dialects: ["chat"],
    says: "Without `include_usage` no chunk of usage comes.",
    run: async (probe) => {
      const answer = await probe.good({ ...probe.form.body(hello), stream: true });
      const usages = eventsOf(answer.text).filter(
        ({ data }) => fieldsOf(json(data))["choices"]?.toString() === "",
      );
      probe.expect(usages.length === 0, "a chunk without choices that nobody asked for", answer);
    },
  },
  {
    name: "stream-flows",
    subject: "streams",
    rule: "ours",
    needs: "scripted",
    says: "Events are passed on as they come, not gathered to the end.",
    slow: true,
    run: async (probe) => {
      const text = "one two three four five six seven eight";
      const answer = await probe.goodPost(
        probe.form.body({
          prompt: scripted({
            answer: { parts: [{ type: "text", text }] },
            faults: { delayBetweenEventsMs: PACE_MS },
          }),
          stream: true,
        }),
      );
      const took = (answer.reads.at(-1) ?? 0) - (answer.reads[0] ?? 0);
      const least = (PACED_EVENTS * PACE_MS) / 2;
      probe.expect(
        took >= least,
        `all of it came within ${Math.round(took)} ms, not ${least} or more`,
        answer,
      );
    },
  },
];
