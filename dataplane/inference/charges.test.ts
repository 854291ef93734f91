/** What is charged where the upstream's report is missing or odd. When the client leaves: disconnects.test.ts. */
import { describe, expect, test } from "vitest";
import { bodyOf, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { text } from "../../test/fakes/upstream/script.ts";
import { withFaults } from "../../test/fakes/upstream/server.ts";
import { dialects } from "../dialects/dialect.ts";

const { callTo, fake, serve } = await serveOneUpstream();

describe.each(dialects)("%s", (dialect) => {
  test("no usage from the upstream: charged from an estimate of what was seen", async () => {
    for (const stream of [false, true]) {
      fake.next(withFaults(text("word ".repeat(80)), { noUsage: true }));
      const call = callTo(dialect, bodyOf(dialect, { stream }));
      await serve(call);
      expect(call.meter.settled).toMatchObject([{ status: "ok", estimated: true }]);
      expect(call.meter.settled[0]?.tokens.output).toBeGreaterThanOrEqual(80);
      expect(call.meter.settled[0]?.tokens.output).toBeLessThan(800);
    }
  });
});

describe("a whole answer whose upstream counted no output is charged for what it wrote", () => {
  const written = "x".repeat(400);
  const bodies = {
    messages: { content: [{ type: "text", text: written }], usage: { input_tokens: 10 } },
    chat: {
      choices: [{ message: { role: "assistant", content: written } }],
      usage: { prompt_tokens: 10, completion_tokens: 0 },
    },
    responses: {
      output: [{ type: "message", content: [{ type: "output_text", text: written }] }],
      usage: { input_tokens: 10, output_tokens: -5 },
    },
  };
  test.each(dialects)("%s", async (dialect) => {
    fake.next({ raw: { body: JSON.stringify(bodies[dialect]) } });
    const call = callTo(dialect, bodyOf(dialect));
    await serve(call);
    expect(call.meter.settled).toMatchObject([
      { status: "ok", estimated: true, tokens: { input: 10, output: 100 } },
    ]);
  });

  test("and for nothing when it wrote nothing", async () => {
    const empty = { choices: [{ message: { content: "" } }], usage: { prompt_tokens: 10 } };
    fake.next({ raw: { body: JSON.stringify(empty) } });
    const call = callTo("chat", bodyOf("chat"));
    await serve(call);
    expect(call.meter.settled).toMatchObject([{ estimated: false, tokens: { input: 10, output: 0 } }]);
  });
});

test("rule 1.15: cached and written tokens are parts of the prompt", async () => {
  const usage = {
    prompt_tokens: 10,
    completion_tokens: 5,
    prompt_tokens_details: { cached_tokens: 1_000_000, cache_write_tokens: 7 },
  };
  fake.next({ raw: { body: JSON.stringify({ choices: [{ message: { content: "x" } }], usage }) } });
  const call = callTo("chat", bodyOf("chat"));
  await serve(call);
  expect(call.meter.settled).toMatchObject([
    { tokens: { input: 0, cacheRead: 10, cacheWrite5m: 0, output: 5 } },
  ]);
});
