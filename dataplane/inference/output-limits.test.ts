/** Rule 2.6: what becomes of output limits. */
import { expect, test } from "vitest";
import { hello, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { callOn, limitField, nameOf, ways } from "../../test/fakes/ways.ts";
import { errorStatus } from "../dialects/errors.ts";

const { fake, refusal, serve } = await serveOneUpstream();
const responses = ways.filter(({ client }) => client === "responses");

test.each(responses.map((way) => [nameOf(way), way] as const))(
  "fewer than 16 are 400 for a Responses client, as from the vendor, for free: %s",
  async (_, way) => {
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
  },
);

test.each([
  [{ max_tokens: 50 }, { max_tokens: 50 }],
  [{ max_completion_tokens: 50 }, { max_completion_tokens: 50 }],
  [{ max_tokens: 50, max_completion_tokens: 60 }, { max_completion_tokens: 60 }],
  // Reasoning models of the vendor refuse the older field.
  [{}, { max_completion_tokens: 1000 }],
  [{ max_tokens: null, max_completion_tokens: null }, { max_completion_tokens: 1000 }],
])("a tool loop names Chat's limit as its client does, else by its present name: %j", async (asked, sent) => {
  const way = { path: "tools", client: "chat", upstream: "chat", stream: false } as const;
  fake.next(hello);
  await serve(callOn(fake.url, way, { body: { max_completion_tokens: undefined, ...asked } }));
  const limits = fake.requests.map((request) => {
    const { max_tokens, max_completion_tokens } = request.json() as Record<string, unknown>;
    return { max_tokens, max_completion_tokens };
  });
  expect(limits).toEqual([sent]);
});

const raised = ways.filter(({ client, upstream }) => client !== "responses" && upstream === "responses");
test.each(raised.map((way) => [nameOf(way), way] as const))(
  "raised, and held as raised: %s",
  async (_, way) => {
    const held: bigint[] = [];
    for (const limit of [10, 16]) {
      const call = callOn(fake.url, way, { body: { [limitField[way.client]]: limit } });
      await serve(call);
      held.push(...call.meter.opened.map(({ estimate }) => estimate));
      expect(fake.requests.at(-1)?.json()).toMatchObject({ max_output_tokens: 16 });
    }
    expect(held[0]).toBe(held[1]);
  },
);
