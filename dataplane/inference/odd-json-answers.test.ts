/** Whole answers that JSON.parse takes and a strict reader does not: each path reads of them what every client reads. */
import { expect, test } from "vitest";
import { hello, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { callOn, nameOf, ways, type Way } from "../../test/fakes/ways.ts";
import type { Dialect } from "../dialects/dialect.ts";

const { fake, refusal, serve } = await serveOneUpstream();

const whole = ways.filter(({ stream }) => !stream).map((way) => [nameOf(way), way] as const);

/** A good answer of this upstream, as it comes. */
async function goodOf(upstream: Dialect, stream = false): Promise<string> {
  fake.reset();
  fake.next(hello);
  const body = stream && upstream === "chat" ? { stream_options: { include_usage: true } } : {};
  const call = callOn(fake.url, { path: "relay", client: upstream, upstream, stream }, { body });
  await serve(call);
  return call.sink.text;
}

async function answer(way: Way, body: Buffer | string) {
  fake.reset();
  fake.next({ raw: { body, contentType: "application/json" } });
  const call = callOn(fake.url, way);
  await serve(call);
  return {
    text: call.sink.text,
    said: JSON.parse(call.sink.text) as Record<string, unknown>,
    charge: call.meter.settled[0],
  };
}

const parts = { messages: "content", chat: "choices", responses: "output" };

/** The answer, with half a character in each place where it says hello. */
function cutWithin(body: string): Buffer {
  const half = Buffer.from("\u{1F99C}").subarray(0, -1);
  const pieces = body.split("Hello").flatMap((piece) => [Buffer.from("Hell"), half, Buffer.from(piece)]);
  return Buffer.concat(pieces.slice(2));
}

const streamed = ways.filter(({ stream }) => stream).map((way) => [nameOf(way), way] as const);

test.each(streamed)(
  "a text that is cut within a character, in each event that tells it: %s",
  async (_name, way) => {
    const good = (await goodOf(way.upstream, true)).replaceAll("public-model", "theirs");
    fake.reset();
    fake.next({ raw: { body: cutWithin(good), contentType: "text/event-stream" } });
    const call = callOn(fake.url, way);
    await serve(call);
    expect(call.sink.text).toContain("Hell\ufffd");
    expect(call.sink.text).not.toContain("theirs");
    expect(call.meter.settled).toMatchObject([{ status: "ok", tokens: { input: 11, output: 7 } }]);
  },
);

test.each(whole)("a text that is cut within a character: %s", async (_name, way) => {
  const { text, charge } = await answer(way, cutWithin(await goodOf(way.upstream)));
  expect(text).toContain("Hell\ufffd");
  expect(charge).toMatchObject({ status: "ok", tokens: { input: 11, output: 7 } });
});

test.each(whole)("members that stand twice, of which the last counts: %s", async (_name, way) => {
  const good = await goodOf(way.upstream);
  const usage =
    way.upstream === "chat"
      ? { prompt_tokens: 999, completion_tokens: 999 }
      : { input_tokens: 999, output_tokens: 999 };
  const first = JSON.stringify({
    model: "theirs",
    usage,
    error: { message: "no" },
    status: "failed",
    [parts[way.upstream]]: [],
  });
  const model = good.replace(/"model":"[^"]*"/, '"model":"theirs"');
  const status = way.upstream === "responses" ? "" : ',"status":null';
  const { said, text, charge } = await answer(
    way,
    `${first.slice(0, -1)},"error":null${status},${model.slice(1)}`,
  );
  expect(text).toContain("Hello");
  expect(said["model"]).toBe("public-model");
  expect(text).not.toContain("theirs");
  expect(charge).toMatchObject({ status: "ok", tokens: { input: 11, output: 7 } });
});

test.each(whole)("a member whose last is none: %s", async (_name, way) => {
  const good = await goodOf(way.upstream);
  fake.reset();
  fake.next({
    raw: { body: `${good.slice(0, -1)},"${parts[way.upstream]}":null}`, contentType: "application/json" },
  });
  const call = callOn(fake.url, way);
  expect(await refusal(call)).toMatchObject({ code: "upstream_error", kind: { status: 502 } });
  expect(call.meter.settled).toMatchObject([{ status: "error" }]);
});

test.each([
  ["messages", `{"type":"thinking","thinking":"Hm.","signature":"secret one","signature":"secret two"}`],
  [
    "responses",
    `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"secret one","encrypted_content":"secret two"}`,
  ],
] as const)("what is sealed is so wherever it stands: %s", async (dialect, block) => {
  const good = await goodOf(dialect);
  const body = good.replace(new RegExp(`"${parts[dialect]}":\\[`), (open) => `${open}${block},`);
  const { text } = await answer({ path: "relay", client: dialect, upstream: dialect, stream: false }, body);
  expect(text).not.toContain("secret");
  expect(text.match(/gapura_r1_/g)).toHaveLength(2);
});
