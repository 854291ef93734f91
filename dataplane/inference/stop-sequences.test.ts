/**
 * Rule 2.4 on every way on which an upstream does not apply a stop sequence by itself: the answer ends before it, the
 * client is told why, a stream's upstream is let go, and the charge is what it reported, or what was seen.
 */
import { describe, expect, test } from "vitest";
import { serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { streamFaults, vendorJudge } from "../../test/vendor/judge.ts";
import { vendorType } from "../../test/vendor/vendor-type.ts";
import type { Step } from "../../test/fakes/upstream/script.ts";
import { withFaults } from "../../test/fakes/upstream/server.ts";
import { callOn, nameOf, ways, type Way } from "../../test/fakes/ways.ts";
import type { RunTool } from "../tools/toolbox.ts";

const judge = await vendorJudge();
const found: RunTool = async () => ({ kind: "hits", hits: [], posts: 0, profiles: 0 });
const { fake, serve } = await serveOneUpstream(found);

const five = ["never", "nor this", "neither", "at no time", "THE END"];
const cutHere = ways.filter(
  ({ path, client, upstream }) => path !== "relay" && client !== "responses" && upstream !== "messages",
);
const stopsOf = ({ client }: Way, stops: readonly string[]) => ({
  body: { [client === "messages" ? "stop_sequences" : "stop"]: stops },
});
const long = { connectMs: 1_000, firstByteMs: 20_000, streamIdleMs: 20_000, requestMs: 20_000 };

/** Thinking and text; the sequence stands in the thinking as well, where it stops nothing. */
const usage = { input: 50, output: 60 };
const telling = (text: string): Step => ({
  answer: {
    parts: [
      { type: "thinking", text: "I shall write THE END soon." },
      { type: "text", text },
    ],
    usage,
    deltaChars: 2,
  },
});

/** Serves one request, and returns what its client reads. */
async function answerOn(way: Way, step: Step) {
  fake.model("upstream-model", step);
  const call = callOn(fake.url, way, { ...stopsOf(way, five), route: { timeouts: long } });
  await serve(call);
  const { text } = call.sink;
  expect(call.sink.headers["x-gapura-dropped"]).toBeUndefined();
  expect(call.meter.settled).toHaveLength(1);
  const faults = way.stream
    ? streamFaults(judge, way.client, text)
    : judge(vendorType(way.client, "Answer"), JSON.parse(text));
  expect(faults).toEqual([]);
  return { ...read(way, text), wire: text, charge: call.meter.settled[0] };
}

/** Text, stop reason and stop sequence of an answer. */
function read({ client, stream }: Way, wire: string) {
  const objects = stream
    ? wire
        .split("\n")
        .filter((line) => line.startsWith("data: {"))
        .map((line) => JSON.parse(line.slice(6)))
    : [JSON.parse(wire)];
  if (client === "chat") {
    const choices = objects.flatMap(({ choices: some }) => some);
    return {
      text: choices.map(({ delta, message }) => (delta ?? message).content ?? "").join(""),
      reason: choices.map(({ finish_reason: reason }) => reason).find((reason) => typeof reason === "string"),
      sequence: null,
    };
  }
  if (!stream) {
    const [{ content, stop_reason, stop_sequence }] = objects;
    const texts = content.filter(({ type }: { type: string }) => type === "text");
    return {
      text: texts.map(({ text }: { text: string }) => text).join(""),
      reason: stop_reason,
      sequence: stop_sequence,
    };
  }
  const end = objects.find(({ type }) => type === "message_delta");
  return {
    text: objects.map(({ delta }) => delta?.text ?? "").join(""),
    reason: end?.delta.stop_reason,
    sequence: end?.delta.stop_sequence,
  };
}

describe.each(cutHere.map((way) => [nameOf(way), way] as const))("%s", (_, way) => {
  const reasons =
    way.client === "chat"
      ? { reason: "stop", sequence: null }
      : { reason: "stop_sequence", sequence: "THE END" };

  test("nothing from the sequence on leaves, and the client is told", async () => {
    const got = await answerOn(way, telling("Once upon THE time. THE END. And THE END again."));
    expect(got).toMatchObject({ text: "Once upon THE time. ", ...reasons });
    expect(got.wire).not.toContain("again");
    const { stop } = fake.requests.map((request) => request.json() as { stop?: unknown })[0] ?? {};
    expect(stop).toEqual(way.upstream === "chat" ? five.slice(0, 4) : undefined);
  });

  test("a running upstream is let go; charged is what it reported, else what was seen", async () => {
    // The rest would take half a minute.
    const step = withFaults(telling(`Hi. THE END${" and so on".repeat(100)}`), {
      delayBetweenEventsMs: way.stream ? 20 : 0,
    });
    const begun = performance.now();
    const got = await answerOn(way, step);
    expect(got).toMatchObject({ text: "Hi. ", ...reasons });
    const { charge } = got;
    expect(charge).toMatchObject({ status: "ok", iterations: 1 });
    if (!way.stream) {
      expect(charge).toMatchObject({ estimated: false, tokens: { input: 50, output: 60 } });
      return;
    }
    expect(performance.now() - begun).toBeLessThan(8_000);
    await expect.poll(() => fake.requests[0]?.outcome).toBe("aborted");
    expect(charge?.estimated).toBe(true);
    expect(charge?.tokens.input).toBeGreaterThan(0);
    // The thinking and the eleven letters of the text, at four a token, and no more than the event after them.
    expect(charge?.tokens.output).toBeGreaterThanOrEqual(9);
    expect(charge?.tokens.output).toBeLessThan(15);
  });

  test("an answer that ends with half a sequence is whole", async () => {
    const got = await answerOn(way, telling("It ends with THE EN"));
    expect(got.text).toBe("It ends with THE EN");
    expect(got.reason).toBe(way.client === "chat" ? "stop" : "end_turn");
    expect(got.charge).toMatchObject({ estimated: false, tokens: { input: 50, output: 60 } });
  });

  test("the arguments of a call are no text", async () => {
    const step: Step = {
      answer: { parts: [{ type: "tool", name: "tell", input: { said: "THE END" } }], usage },
    };
    const tool =
      way.client === "messages"
        ? { name: "tell", input_schema: { type: "object" } }
        : { type: "function", function: { name: "tell" } };
    fake.model("upstream-model", step);
    const declared = way.path === "tools" && way.client === "messages" ? [searchTool, tool] : [tool];
    const call = callOn(fake.url, way, {
      body: { ...stopsOf(way, [...five, "END"]).body, tools: declared },
    });
    await serve(call);
    expect(call.sink.text).toContain("END");
    expect(call.sink.text).toContain(way.client === "messages" ? `"tool_use"` : `"tool_calls"`);
  });

  test("the whole answer at once", async () => {
    const got = await answerOn(way, withFaults(telling("Now. THE END"), { atOnce: true }));
    expect(got).toMatchObject({
      text: "Now. ",
      ...reasons,
      // The report had come.
      charge: { estimated: false, tokens: { input: 50, output: 60 } },
    });
  });

  test("a first word that is a sequence leaves an empty answer", async () => {
    const got = await answerOn(way, telling("THE END of it"));
    expect(got).toMatchObject({ text: "", ...reasons });
    expect(got.wire).not.toContain(`"text":""`);
  });
});

const searchTool = { type: "web_search_20250305", name: "web_search" };

test("each iteration of a tool loop is cut, and the calls beside it are not run", async () => {
  for (const stream of [false, true]) {
    const way: Way = { path: "tools", client: "messages", upstream: "responses", stream };
    fake.reset();
    fake.next(
      { answer: { parts: [{ type: "tool", name: "web_search", input: { query: "gates" } }] } },
      {
        answer: {
          parts: [
            { type: "text", text: "Found. STOP it" },
            { type: "tool", name: "web_search", input: { query: "more" } },
          ],
        },
      },
    );
    const call = callOn(fake.url, way, stopsOf(way, ["STOP"]));
    await serve(call);
    expect(read(way, call.sink.text)).toEqual({
      text: "Found. ",
      reason: "stop_sequence",
      sequence: "STOP",
    });
    expect(fake.requests).toHaveLength(2);
    expect(call.meter.settled[0]).toMatchObject({ iterations: 2, tools: { webSearches: 1 } });
  }
});

test("more characters of stop sequences than anybody needs are refused before any upstream is asked", async () => {
  const [way] = cutHere as [Way];
  const call = callOn(fake.url, way, stopsOf(way, ["x".repeat(16_384)]));
  await expect(serve(call)).rejects.toMatchObject({ param: "stop_sequences" });
  expect(fake.requests).toHaveLength(0);
});
