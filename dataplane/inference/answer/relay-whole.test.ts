/** Whole answers that pass by: their bytes, and those that are no answers. */
import { describe, expect, test } from "vitest";
import { bodyOf, hello, serveOneUpstream } from "../../../test/fakes/one-upstream.ts";
import type { Faults } from "../../../test/fakes/upstream/script.ts";
import { withFaults } from "../../../test/fakes/upstream/server.ts";
import { dialects } from "../../dialects/dialect.ts";

const { callTo, fake, refusal, serve } = await serveOneUpstream();

test("an answer's bytes come back untouched save for the model's name", async () => {
  const body =
    '{"id":"msg_1", "type":"message","content":[ {"type":"text","text":"\\u00e9"}],\r\n "model": "upstream-model",' +
    '"usage":{"input_tokens":3,"output_tokens":4,"big":123456789012345678901234567890},"future":{"a" :1}}';
  fake.next({ raw: { body } });
  const call = callTo("messages", bodyOf("messages"));
  await serve(call);
  expect(call.sink.text).toBe(body.replace("upstream-model", "public-model"));
});

test("a whole Chat answer gets annotations where it has none, and keeps those that it has", async () => {
  const choice = (message: string) => `{"index":0,"message":${message},"finish_reason":"stop"}`;
  const body = `{"model":"public-model","choices":[${choice('{"role":"assistant"}')},${choice('{"annotations":[1]}')},${choice("{}")},${choice('{"annotations": null, "content":"a"}')}]}`;
  fake.next({ raw: { body } });
  const call = callTo("chat", bodyOf("chat"));
  await serve(call);
  expect(JSON.parse(call.sink.text)).toMatchObject({
    choices: [
      { message: { annotations: [] } },
      { message: { annotations: [1] } },
      { message: { annotations: [] } },
      { message: { annotations: [], content: "a" } },
    ],
  });
});

describe.each(dialects)("%s", (dialect) => {
  const wholeFaults: [string, Faults, number, boolean][] = [
    ["HTML", { html: true }, 502, true],
    ["truncated", { malformed: true }, 502, true],
    ["cut", { cutAtByte: 40 }, 502, true],
    ["empty", { empty: true }, 502, false],
  ];
  test.each(wholeFaults)("rule 1.6: a whole answer that is %s", async (_name, faults, status, charged) => {
    fake.next(withFaults(hello, faults));
    const call = callTo(dialect, bodyOf(dialect));
    const error = await refusal(call);
    expect(error.kind.status).toBe(status);
    expect(error.code).toBe("upstream_error");
    expect(call.meter.settled.map(({ status, estimated }) => [status, estimated])).toEqual(
      charged ? [["error", true]] : [],
    );
    expect(call.meter.released).toBe(charged ? 0 : 1);
  });
});

describe("dialects.md §D3: a whole Responses answer that is none by its own account", () => {
  const usage = { input_tokens: 3, output_tokens: 4 };
  const output = [{ type: "message", content: [{ type: "output_text", text: "Half an ans" }] }];
  const error = { code: "server_error", message: "key sk-proj-abcdefgh at http://10.1.2.3/v1" };
  const relayed = (more: object) => {
    const body = JSON.stringify({ object: "response", model: "public-model", output, usage, ...more });
    fake.next({ raw: { body } });
    return { body, call: callTo("responses", bodyOf("responses")) };
  };

  test.each([
    ["failed", { status: "failed", error }],
    ["failed, with nothing in it", { output: [], error, status: "failed" }],
    ["failed, without saying why", { status: "failed", error: null }],
    ["with an error alone", { error }],
    ["cancelled", { status: "cancelled" }],
    ["queued", { status: "queued", output: [] }],
    ["in progress", { status: "in_progress" }],
  ])("%s: 502 in our own words, charged as it reports", async (_name, more) => {
    const { call } = relayed(more);
    const refused = await refusal(call);
    expect(refused).toMatchObject({ code: "upstream_error", kind: { status: 502 } });
    expect(refused.message).not.toMatch(/sk-proj|10\.1\.2\.3/);
    expect(call.meter.settled).toMatchObject([
      { status: "error", estimated: false, tokens: { input: 3, output: 4 } },
    ]);
  });

  test("one that failed and neither wrote nor reports anything costs nothing", async () => {
    const { call } = relayed({ status: "failed", output: [], error, usage: null });
    expect(await refusal(call)).toMatchObject({ code: "upstream_error", kind: { status: 502 } });
    expect([call.meter.settled, call.meter.released]).toEqual([[], 1]);
  });

  test.each(["failed", "in_progress"])(
    "one that is %s and reports nothing is charged for what it wrote (rule 10.6)",
    async (status) => {
      const { call } = relayed({ status, usage: null });
      expect(await refusal(call)).toMatchObject({ code: "upstream_error" });
      expect(call.meter.settled).toMatchObject([
        { status: "error", estimated: true, tokens: { output: Math.ceil("Half an ans".length / 4) } },
      ]);
    },
  );

  test.each([{ status: "completed", error: null }, { status: "incomplete" }, { status: null }, {}])(
    "%j is one",
    async (more) => {
      const { body, call } = relayed(more);
      await serve(call);
      expect(call.sink.text).toBe(body);
      expect(call.meter.settled).toMatchObject([{ status: "ok", estimated: false }]);
    },
  );
});
