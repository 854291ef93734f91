/** A Messages upstream whose model takes one of `temperature` and `top_p` is asked for one, where the client speaks another dialect. */
import { expect, test } from "vitest";
import { hello, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { callOn } from "../../test/fakes/ways.ts";

const { fake, refusal, serve } = await serveOneUpstream();

const message = "`temperature` and `top_p` cannot both be specified for this model. Please use only one.";
const refused = {
  raw: {
    status: 400,
    contentType: "application/json",
    body: JSON.stringify({ type: "error", error: { type: "invalid_request_error", message } }),
  },
};
const fromOthers = (["chat", "responses"] as const).flatMap((client) =>
  (["convert", "tools"] as const).map(
    (path) => ({ path, client, upstream: "messages", stream: false }) as const,
  ),
);
const sampling = () =>
  fake.requests.map(({ text }) => {
    const { temperature, top_p } = JSON.parse(text) as { temperature?: number; top_p?: number };
    return [temperature, top_p];
  });

test.each(fromOthers)(
  "$client on the way $path: only the temperature is sent, later at once",
  async (way) => {
    fake.reset();
    fake.next(refused, hello, hello, hello);
    const first = callOn(fake.url, way, { body: { temperature: 0.5, top_p: 0.9 } });
    await serve(first);
    expect(first.sink.headers["x-gapura-dropped"]).toBe("top_p");
    for (const body of [{ temperature: 0.6, top_p: 0.8 }, { top_p: 0.7 }])
      await serve({ ...callOn(fake.url, way, { body }), snapshot: first.snapshot });
    expect(sampling()).toEqual([
      [0.5, 0.9],
      [0.5, undefined],
      [0.6, undefined],
      [undefined, 0.7],
    ]);
  },
);

test.each([
  [{ temperature: 1, top_p: 0.9 }, [undefined, 0.9]],
  [{ temperature: 0.5, top_p: 1 }, [0.5, undefined]],
])("%j: what says nothing goes unnamed, under strict too", async (body, sent) => {
  for (const headers of [{}, { "x-gapura-strict": "true" }]) {
    fake.reset();
    fake.next(refused, hello);
    const call = { ...callOn(fake.url, fromOthers[0]!, { body }), headers };
    await serve(call);
    expect(call.sink.headers["x-gapura-dropped"]).toBeUndefined();
    expect(sampling()[1]).toEqual(sent);
  }
});

test("strict is refused where either says something", async () => {
  fake.reset();
  fake.next(refused);
  const call = callOn(fake.url, fromOthers[0]!, { body: { temperature: 0.5, top_p: 0.9 } });
  const error = await refusal({ ...call, headers: { "x-gapura-strict": "true" } });
  expect([error.kind.status, error.param]).toEqual([400, "top_p"]);
  expect(fake.requests).toHaveLength(1);
});

test("a Messages client has to know", async () => {
  fake.reset();
  fake.next(refused);
  const way = { path: "relay", client: "messages", upstream: "messages", stream: false } as const;
  const error = await refusal(callOn(fake.url, way, { body: { temperature: 0.5, top_p: 0.9 } }));
  expect(error.kind.status).toBe(400);
  expect(fake.requests).toHaveLength(1);
});
