/** Rule 1.14: a stream whose first event is garbage is no answer, and no failure of its upstream's health, on any way. */
import { expect, test } from "vitest";
import { serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { text } from "../../test/fakes/upstream/script.ts";
import { callOn, nameOf, ways } from "../../test/fakes/ways.ts";
import { dialects, type Dialect } from "../dialects/dialect.ts";
import { ApiError } from "../lib/api-error.ts";
import { metrics } from "../telemetry/metrics.ts";
import { FAILURES_TO_EJECT } from "../upstream/health.ts";

const { fake, refusal, serve } = await serveOneUpstream();

const garbage: Readonly<Record<string, string>> = {
  "no JSON": "data: {bad\n\n",
  "a web page": "data: <html><body>502 Bad Gateway</body></html>\n\n",
  "no JSON that speaks of an error": 'data: {"error": {"message": "overload\n\n',
  "an array": 'data: [{"error": "none"}]\n\n',
  "a string": 'data: "error"\n\n',
  "a number": "data: 42\n\n",
  "no JSON behind a comment": ": ping\n\ndata: nonsense\n\n",
};

const foreign: Readonly<Record<Dialect, string>> = {
  messages: 'event: message_start\ndata: {"type":"message_start","message":{"id":"m","model":"theirs"}}\n\n',
  chat: 'data: {"id":"c","object":"chat.completion.chunk","model":"theirs","choices":[]}\n\n',
  responses: 'event: response.created\ndata: {"type":"response.created","response":{"model":"theirs"}}\n\n',
};

const strange = ways
  .filter(({ stream }) => stream)
  .flatMap((way) =>
    dialects.filter((other) => other !== way.upstream).map((other) => [other, nameOf(way), way] as const),
  );

test.each(strange)(
  "rule 1.6: a stream of %s is no answer of another dialect: %s",
  async (other, _name, way) => {
    fake.next({ raw: { body: foreign[other].repeat(2), contentType: "text/event-stream" } });
    const call = callOn(fake.url, way);
    const error = await refusal(call);
    expect(error).toMatchObject({ code: "upstream_error", kind: { status: 502 } });
    expect([call.sink.status, call.meter.settled, call.meter.released]).toEqual([0, [], 1]);
  },
);

const isEjected = async (model: string) => {
  const { values } = await metrics.upstreamEjected.get();
  return values.some(({ labels, value }) => labels.model === model && value === 1);
};

const cells = ways
  .filter(({ stream }) => stream)
  .flatMap((way) => Object.keys(garbage).map((what) => [what, nameOf(way), way] as const));

test.each(cells)("%s: %s", async (what, name, way) => {
  const model = `garbage ${cells.findIndex((cell) => cell[0] === what && cell[1] === name)}`;
  const more = { route: { model }, body: { model } };
  const raw = { body: garbage[what] ?? "", contentType: "text/event-stream" };
  for (let time = 0; time <= FAILURES_TO_EJECT; time += 1) {
    fake.next({ raw });
    const call = callOn(fake.url, way, more);
    const error = await serve(call).then(
      () => null,
      (thrown: unknown) => thrown,
    );
    expect(error).toBeInstanceOf(ApiError);
    expect((error as ApiError).kind.status).toBe(502);
    expect(call.sink.status).toBe(0);
    expect([call.meter.settled, call.meter.released]).toEqual([[], 1]);
  }
  expect(await isEjected(model)).toBe(false);
  fake.next(text("Hello"));
  const call = callOn(fake.url, way, more);
  await serve(call);
  expect(call.sink.status).toBe(200);
});
