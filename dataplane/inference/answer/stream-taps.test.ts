import fc from "fast-check";
import { tokensOf } from "../../billing/token-usage.ts";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { typedFrame } from "../../../test/fakes/upstream/render.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { SseScanner } from "../../lib/sse.ts";
import { DeltaTemplate } from "./delta-template.ts";
import { streamTap } from "./stream-taps.ts";
import type { TapOptions } from "./usage-tap.ts";
import { runs } from "../../../test/fakes/runs.ts";

const options: TapOptions = { model: "public", usageInjected: false, choices: 1 };

/** What relay would send, and what the tap learned. Frames behind the end are still looked at. */
function tapped(
  dialect: Dialect,
  stream: string,
  more: Partial<TapOptions> = {},
  cuts: readonly number[] = [],
) {
  const tap = streamTap(dialect, { ...options, ...more });
  const kinds: string[] = [];
  let sent = "";
  const scanner = new SseScanner((frame) => {
    const inspected = tap.inspect(frame);
    kinds.push(inspected.kind);
    const { bytes, start, end } = frame;
    if (inspected.kind === "swallow" || inspected.kind === "error") return;
    let from = start;
    for (const model of inspected.kind === "patch" || inspected.kind === "terminal" ? inspected.models : []) {
      sent += `${bytes.toString("utf8", from, model.start)}"public"`;
      from = model.end;
    }
    sent += bytes.toString("utf8", from, end);
  });
  const bytes = Buffer.from(stream);
  const ends = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].sort((a, b) => a - b);
  let from = 0;
  for (const end of [...ends, bytes.length]) {
    scanner.push(bytes.subarray(from, end));
    from = end;
  }
  scanner.end();
  const tokens = tap.usage === null ? null : tokensOf(tap.usage);
  return { sent, kinds, tokens, final: tap.final, estimated: tap.written.tokens, faults: tap.faults };
}

const chunk = (delta: object, more: object = {}, finish: string | null = null) =>
  `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", model: "theirs", choices: [{ index: 0, delta, finish_reason: finish }], ...more })}\n\n`;
const usage = {
  prompt_tokens: 20,
  completion_tokens: 9,
  prompt_tokens_details: { cached_tokens: 5, cache_write_tokens: 2 },
  completion_tokens_details: { reasoning_tokens: 3 },
};
const usageChunk = `data: ${JSON.stringify({ id: "c", model: "theirs", choices: [], usage })}\n\n`;
const done = "data: [DONE]\n\n";
const tokens = { input: 13, cacheRead: 5, cacheWrite5m: 2, cacheWrite1h: 0, output: 9, reasoning: 3 };

test("of an event that is longer than any delta nothing is kept to know its like by", () => {
  const of = vi.spyOn(DeltaTemplate, "of");
  onTestFinished(() => of.mockRestore());
  const long = chunk({ content: "abcd" }, { padding: "x".repeat(1_000_000) });
  expect(tapped("chat", long + long)).toMatchObject({ estimated: 2, faults: 0 });
  expect(of).not.toHaveBeenCalled();
  expect(tapped("chat", chunk({ content: "abcd" }) + long)).toMatchObject({ estimated: 2, faults: 0 });
  expect(of).toHaveBeenCalledOnce();
});

test("an error that an earlier event of a Responses stream held is none of the last response", () => {
  const told = (type: string, response: object) => typedFrame(type, { response });
  const begun = told("response.in_progress", { error: { code: "x" } });
  const answer = { output: [], usage: { input_tokens: 1, output_tokens: 1 } };
  expect(tapped("responses", begun + told("response.completed", answer)).kinds).toEqual(["pass", "terminal"]);
  const failed = told("response.completed", { ...answer, error: { code: "x" } });
  expect(tapped("responses", begun + failed).kinds).toEqual(["pass", "error"]);
});

describe("chat", () => {
  const words = [
    "",
    "Hel",
    "lo",
    ' "quoted" \\ ',
    "\n{}[]",
    "😀",
    '"finish_reason":"stop"',
    '"usage":{"a":1}',
  ];
  const plain =
    chunk({ role: "assistant", content: "" }) + words.map((content) => chunk({ content })).join("");
  const stream = plain + chunk({}, {}, "stop") + usageChunk + done;

  test("the end begins with the last finish_reason; usage behind it is read", () => {
    const seen = tapped("chat", stream);
    expect(seen).toMatchObject({ tokens, final: true, faults: 0 });
    expect(seen.kinds.slice(-3)).toEqual(["terminal", "patch", "terminal"]);
    expect(seen.kinds.indexOf("terminal")).toBe(words.length + 1);
    expect(seen.sent).toBe(stream.replaceAll('"theirs"', '"public"'));
  });

  test("every name is patched wherever it stands, in any chunking, and no other byte changes", () => {
    const piece = fc.record({
      content: fc.string({ unit: "grapheme", maxLength: 12 }),
      field: fc.constantFrom("content", "reasoning_content", "refusal"),
      extra: fc.constantFrom({}, { obfuscation: "x" }, { usage: null }, { created: 5, model: "theirs" }),
      space: fc.constantFrom(0, 1),
    });
    fc.assert(
      fc.property(
        fc.array(piece, { maxLength: 12 }),
        fc.array(fc.nat(), { maxLength: 6 }),
        (pieces, cuts) => {
          const text = pieces
            .map(({ content, field, extra, space }) => {
              const event = {
                id: "c",
                ...extra,
                model: "theirs",
                choices: [{ index: 0, delta: { [field]: content }, finish_reason: null }],
              };
              return `data: ${JSON.stringify(event, null, space).replaceAll("\n", "")}\n\n`;
            })
            .join("");
          const seen = tapped("chat", text + done, {}, cuts);
          // A name within the text itself stands there with its quotes escaped.
          expect(seen.sent).toBe((text + done).replaceAll('"theirs"', '"public"'));
          expect(seen.kinds.slice(0, -1)).not.toContain("terminal");
        },
      ),
      { numRuns: runs(300) },
    );
  });

  test("the injected usage chunk is swallowed, one with choices never", () => {
    const injected = tapped("chat", stream, { usageInjected: true });
    expect(injected.kinds.at(-2)).toBe("swallow");
    expect(injected.tokens).toEqual(tokens);
    const inside = plain + chunk({}, { usage }, "stop") + done;
    expect(tapped("chat", inside, { usageInjected: true })).toMatchObject({ tokens, final: true });
    expect(tapped("chat", inside, { usageInjected: true }).kinds).not.toContain("swallow");
  });

  test("usage on every chunk is a running total: the last one counts", () => {
    const running = words
      .map((content, index) => chunk({ content }, { usage: { prompt_tokens: 7, completion_tokens: index } }))
      .join("");
    expect(tapped("chat", running).tokens).toMatchObject({ input: 7, output: words.length - 1 });
    expect(tapped("chat", running)).toMatchObject({ final: false });
    expect(
      tapped("chat", running + chunk({}, { usage: { prompt_tokens: 7, completion_tokens: 30 } }, "stop")),
    ).toMatchObject({
      final: true,
      tokens: { output: 30 },
    });
  });

  test("rule 2.13: with several choices the end is that of the last one", () => {
    const of = (index: number, finish: string | null) =>
      `data: ${JSON.stringify({ model: "public", choices: [{ index, delta: { content: "x" }, finish_reason: finish }] })}\n\n`;
    const seen = tapped("chat", of(0, null) + of(1, "stop") + of(0, null) + of(0, "length") + done, {
      choices: 2,
    });
    expect(seen.kinds).toEqual(["pass", "pass", "pass", "terminal", "terminal"]);
  });

  test.each(["error", "usage", "finish_reason"])(
    "as many texts %s as an event holds are no such key",
    (word) => {
      const said = chunk(
        { content: "x" },
        { error: null, said: Array.from({ length: 100_000 }, () => word) },
      );
      expect(tapped("chat", said).kinds).toEqual(["patch"]);
    },
  );

  test("a chunk with an error is one, whatever stands beside it", () => {
    const error = 'data: {"error":{"message":"no","code":429}}\n\n';
    expect(tapped("chat", plain + error).kinds.at(-1)).toBe("error");
    expect(tapped("chat", chunk({ content: "x" }, { error: null })).kinds).toEqual(["patch"]);
    expect(tapped("chat", chunk({ content: "x" }, { error: { a: 1 } })).kinds).toEqual(["error"]);
    expect(tapped("chat", chunk({ content: "x", error: { a: 1 } })).kinds).toEqual(["patch"]);
  });

  test("text is counted as it is, whatever surrounds it", () => {
    const text = "word ".repeat(200);
    for (const size of [1, 5, 50])
      for (const more of [{}, { obfuscation: "abcdefgh" }, { system_fingerprint: "x".repeat(80) }]) {
        const pieces = text.match(new RegExp(`.{${size}}`, "g")) ?? [];
        const seen = tapped("chat", pieces.map((content) => chunk({ content }, more)).join(""));
        expect(seen.estimated).toBe(250);
      }
  });

  test("text beside the finish reason is counted too", () => {
    const text = "word ".repeat(200);
    expect(tapped("chat", chunk({ content: text }, {}, "stop")).estimated).toBe(250);
    expect(tapped("chat", chunk({}, {}, "stop")).estimated).toBe(0);
    const second = {
      choices: [
        { index: 0, delta: {}, finish_reason: "stop" },
        { index: 1, delta: { content: text } },
      ],
    };
    expect(tapped("chat", chunk({}, second), { choices: 2 }).estimated).toBe(250);
  });

  test("what cannot be read passes on, and is counted", () => {
    const broken = 'data: {"model":"theirs","choices":[{"finish_reason":"st\n\n';
    const seen = tapped("chat", broken + chunk({ content: "x" }));
    expect(seen.kinds).toEqual(["patch", "patch"]);
    expect(seen.faults).toBeGreaterThan(0);
  });
});

describe("messages", () => {
  const start = typedFrame("message_start", {
    message: {
      id: "m",
      model: "theirs",
      content: [],
      usage: {
        input_tokens: 4,
        cache_read_input_tokens: 2,
        cache_creation_input_tokens: 6,
        output_tokens: 1,
      },
    },
  });
  const delta = (text: string) =>
    typedFrame("content_block_delta", { index: 0, delta: { type: "text_delta", text } });
  const end = (more: object) =>
    typedFrame("message_delta", { delta: { stop_reason: "end_turn" }, usage: more });
  const stop = typedFrame("message_stop", {});

  test("counters of the last message_delta win, null never overwrites", () => {
    const seen = tapped(
      "messages",
      start +
        delta("hi") +
        end({ output_tokens: 5, input_tokens: null }) +
        end({ output_tokens: 9, input_tokens: 12 }) +
        stop,
    );
    expect(seen).toMatchObject({
      final: true,
      tokens: { input: 12, cacheRead: 2, cacheWrite5m: 6, output: 9 },
    });
    expect(seen.kinds).toEqual(["patch", "pass", "pass", "pass", "terminal"]);
  });

  test("rule 5.10: cache writes are split where the upstream splits them, else they count as 5m", () => {
    const split = typedFrame("message_start", {
      message: {
        usage: {
          input_tokens: 1,
          cache_creation_input_tokens: 9,
          cache_creation: { ephemeral_5m_input_tokens: 2, ephemeral_1h_input_tokens: 7 },
        },
      },
    });
    expect(tapped("messages", split).tokens).toMatchObject({ cacheWrite5m: 2, cacheWrite1h: 7 });
    expect(tapped("messages", start).tokens).toMatchObject({ cacheWrite5m: 6, cacheWrite1h: 0 });
  });

  test("before its end a stream's usage is not final", () => {
    expect(tapped("messages", start + delta("hello there")).final).toBe(false);
    expect(tapped("messages", start + delta("hello there")).estimated).toBeGreaterThan(0);
  });

  test("pings, unknown events and events without a name pass", () => {
    const nameless = delta("x").replace(/^event: .*\n/, "") + stop.replace(/^event: .*\n/, "");
    const seen = tapped(
      "messages",
      start + typedFrame("ping", {}) + typedFrame("new_thing", {}) + ": comment\n\n" + nameless,
    );
    expect(seen.kinds).toEqual(["patch", "pass", "pass", "pass", "pass", "terminal"]);
  });

  test("events that bear the name of those without one are known by their types", () => {
    const events = (start + delta("x") + stop).replaceAll(/^event: .*$/gm, "event: message");
    expect(tapped("messages", events).kinds).toEqual(["patch", "pass", "terminal"]);
  });

  test("an error event is the upstream's own", () => {
    expect(
      tapped("messages", start + typedFrame("error", { error: { type: "overloaded_error" } })).kinds.at(-1),
    ).toBe("error");
  });
});

describe("responses", () => {
  const response = (more: object) => ({
    sequence_number: 0,
    response: { id: "r", model: "theirs", output: [], usage: null, ...more },
  });
  const text = (delta: string) => typedFrame("response.output_text.delta", { sequence_number: 1, delta });
  const reported = {
    input_tokens: 20,
    input_tokens_details: { cached_tokens: 5, cache_write_tokens: 2 },
    output_tokens: 9,
    output_tokens_details: { reasoning_tokens: 3 },
  };

  test.each(["response.completed", "response.incomplete"])("%s is the end, and reports", (last) => {
    const stream =
      typedFrame("response.created", response({})) +
      typedFrame("response.in_progress", response({})) +
      text("hi") +
      typedFrame(last, response({ usage: reported }));
    const seen = tapped("responses", stream);
    expect(seen.kinds).toEqual(["patch", "patch", "pass", "terminal"]);
    expect(seen).toMatchObject({ tokens, final: true });
    expect(seen.sent).toBe(stream.replaceAll('"theirs"', '"public"'));
  });

  test("a failed response is an error, charged as it reports", () => {
    const failed = typedFrame(
      "response.failed",
      response({ usage: reported, error: { code: "server_error", message: "x" } }),
    );
    expect(tapped("responses", text("hi") + failed)).toMatchObject({
      kinds: ["pass", "error"],
      tokens,
      final: true,
    });
  });
});

test("zeros are no report", () => {
  expect(
    tapped("chat", usageChunk.replace(/"usage":.*/, '"usage":{"prompt_tokens":0,"completion_tokens":0}}\n\n'))
      .tokens,
  ).toBeNull();
});
