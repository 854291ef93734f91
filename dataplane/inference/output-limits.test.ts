/** Rule 2.6: fewer than 16 output tokens are 400 for a Responses client, as from the vendor, on every path and for free. */
import { expect, test } from "vitest";
import { serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { callOn, nameOf, ways } from "../../test/fakes/ways.ts";
import { errorStatus } from "../dialects/errors.ts";

const { fake, refusal, serve } = await serveOneUpstream();
const responses = ways.filter(({ client }) => client === "responses");

test.each(responses.map((way) => [nameOf(way), way] as const))("%s", async (_, way) => {
  for (const limit of [0, 1, 15]) {
    const call = callOn(fake.url, way, { body: { max_output_tokens: limit } });
    const error = await refusal(call);
    expect(errorStatus("openai", error)).toBe(400);
    expect(error.param).toBe("max_output_tokens");
    expect(call.meter.opened).toHaveLength(0);
  }
  expect(fake.requests).toHaveLength(0);
  const least = callOn(fake.url, way, { body: { max_output_tokens: 16 } });
  await serve(least);
  expect(least.sink.status).toBe(200);
});
