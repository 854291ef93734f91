/** A Chat upstream whose model takes no `stop`, as OpenAI's with reasoning do: the sequences are applied here (rule 2.4). */
import { expect, test } from "vitest";
import { text } from "../../test/fakes/upstream/script.ts";
import { serveOneUpstream, usage } from "../../test/fakes/one-upstream.ts";
import { callOn } from "../../test/fakes/ways.ts";

const { fake, serve } = await serveOneUpstream();

const refused = {
  raw: {
    status: 400,
    contentType: "application/json",
    body: JSON.stringify({
      error: {
        message: "Unsupported parameter: 'stop' is not supported with this model.",
        type: "invalid_request_error",
        param: "stop",
        code: "unsupported_parameter",
      },
    }),
  },
};
const answer = text("One two. STOP and on.", usage);
const ways = (["convert", "tools"] as const).flatMap((path) =>
  [false, true].map((stream) => ({ path, client: "messages", upstream: "chat", stream }) as const),
);

test.each(ways)("on the way $path, streamed: $stream, later at once", async (way) => {
  fake.next(refused, answer, answer);
  const body = { stop_sequences: ["STOP"] };
  const first = callOn(fake.url, way, { body });
  await serve(first);
  const later = callOn(fake.url, way, { body });
  await serve({ ...later, snapshot: first.snapshot });
  const sent = fake.requests.map((request) => (JSON.parse(request.text) as { stop?: string[] }).stop);
  expect(sent).toEqual([["STOP"], undefined, undefined]);
  for (const { sink } of [first, later]) {
    expect(sink.headers["x-gapura-dropped"]).toBeUndefined();
    expect(sink.text).toContain('"stop_sequence":"STOP"');
    expect(sink.text).toContain('"stop_reason":"stop_sequence"');
    expect(sink.text).not.toMatch(/STOP and|\bon\./);
  }
});

test("one that takes it applies it itself", async () => {
  fake.next(answer);
  const call = callOn(
    fake.url,
    { path: "convert", client: "messages", upstream: "chat", stream: false },
    { body: { stop_sequences: ["STOP"] } },
  );
  await serve(call);
  expect(call.sink.text).toContain("One two. STOP and on.");
});
