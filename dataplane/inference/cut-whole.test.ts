/** Rules 1.6, 10.6: a whole answer that was cut costs the text that came, on every way, and nothing for the JSON around it. */
import { describe, expect, test } from "vitest";
import { serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { callOn, nameOf, ways } from "../../test/fakes/ways.ts";
import type { Dialect } from "../dialects/dialect.ts";

const { fake, refusal } = await serveOneUpstream();

/** A long id: what an answer holds beside its text is not charged. */
const id = "x".repeat(4_000);
const said = "a word and ".repeat(100);
const answers: Readonly<Record<Dialect, object>> = {
  messages: { id, type: "message", role: "assistant", content: [{ type: "text", text: said }] },
  chat: {
    id,
    object: "chat.completion",
    choices: [{ index: 0, message: { role: "assistant", content: said } }],
  },
  responses: {
    id,
    object: "response",
    status: "completed",
    output: [{ type: "message", role: "assistant", content: [{ type: "output_text", text: said }] }],
  },
};

/** The same answers with `text` or `content` before the types, after a block that came whole. */
const typesLast: Readonly<Record<Dialect, (text: string) => object>> = {
  messages: (text) => ({
    content: [
      { text: "Well. ", type: "text" },
      { text, type: "text" },
    ],
  }),
  chat: (text) => ({ choices: [{ message: { content: `Well. ${text}`, role: "assistant" } }] }),
  responses: (text) => ({
    output: [
      {
        content: [
          { text: "Well. ", type: "output_text" },
          { text, type: "output_text" },
        ],
        type: "message",
      },
    ],
  }),
};

const whole = ways.filter(({ stream }) => !stream);
describe.each(whole.map((way) => [nameOf(way), way] as const))("%s", (_, way) => {
  const text = JSON.stringify(answers[way.upstream]);
  const cutAtByte = text.indexOf(said) + 400;

  test.each([
    ["by its connection", { raw: { body: text }, faults: { cutAtByte } }],
    ["by whoever wrote it", { raw: { body: text.slice(0, cutAtByte) } }],
  ])("cut %s", async (_name, step) => {
    fake.next(step);
    const call = callOn(fake.url, way);
    expect(await refusal(call)).toMatchObject({ code: "upstream_error" });
    expect(call.meter.settled).toMatchObject([{ status: "error", estimated: true, tokens: { output: 100 } }]);
  });

  test("cut before it came to the types", async () => {
    const body = JSON.stringify(typesLast[way.upstream](said));
    fake.next({ raw: { body: body.slice(0, body.indexOf(said) + 400) } });
    const call = callOn(fake.url, way);
    expect(await refusal(call)).toMatchObject({ code: "upstream_error" });
    const [settled] = call.meter.settled;
    expect(settled?.tokens.output).toBeGreaterThanOrEqual(101);
    expect(settled?.tokens.output).toBeLessThan(105);
  });
});
