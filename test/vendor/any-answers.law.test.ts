/** Whatever an answer of a vendor's type holds, kinds of blocks included that nobody asked for, a client can read what it gets. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { SseEvent } from "../../dataplane/dialects/codecs.ts";
import { type Dialect, dialects } from "../../dataplane/dialects/dialect.ts";
import type { JsonObject } from "../../dataplane/dialects/messages/types.ts";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import { runs } from "../fakes/runs.ts";
import { convertStream, convertWhole, faultsOf, testCarry } from "../grammar/convert.ts";
import { anyOfType } from "./any-of-type.ts";
import { streamFaults, vendorJudge } from "./judge.ts";
import { vendorSchemas } from "./schemas.ts";
import { vendorType } from "./vendor-type.ts";

const judge = await vendorJudge();
const schemas = await vendorSchemas();
const cells = dialects
  .flatMap((from) => dialects.map((to) => ({ from, to })))
  .filter(({ from, to }) => from !== to);

/** What an answer says of itself, at least so that it is one: the names of tiers are each vendor's own. */
const standard: Record<Dialect, JsonObject> = {
  messages: { stop_reason: "end_turn" },
  chat: { service_tier: "default" },
  responses: { service_tier: "default", status: "completed", error: null, incomplete_details: null },
};

const events: Record<Dialect, (answer: JsonObject) => readonly object[]> = {
  messages: ({ content, stop_reason, stop_sequence, stop_details, usage, ...message }) => [
    {
      type: "message_start",
      message: { ...message, content: [], stop_reason: null, stop_sequence: null, usage },
    },
    ...(content as JsonObject[]).flatMap((content_block, index) => [
      { type: "content_block_start", index, content_block },
      { type: "content_block_stop", index },
    ]),
    { type: "message_delta", delta: { stop_reason, stop_sequence, stop_details }, usage },
    { type: "message_stop" },
  ],
  chat: ({ choices, usage, ...completion }) => [
    ...(choices as JsonObject[]).flatMap(({ message, finish_reason, ...choice }) => [
      { ...completion, choices: [{ ...choice, delta: message, finish_reason: null }] },
      { ...completion, choices: [{ ...choice, delta: {}, finish_reason }] },
    ]),
    { ...completion, choices: [], usage: usage ?? null },
  ],
  responses: (response) => [
    { type: "response.created", response: { ...response, status: "in_progress", output: [] } },
    ...(response["output"] as JsonObject[]).flatMap((item, output_index) => [
      { type: "response.output_item.added", output_index, item },
      { type: "response.output_item.done", output_index, item },
    ]),
    { type: "response.completed", response },
  ],
};
const framed = (data: object): SseEvent => ({
  event: "type" in data ? String(data.type) : "",
  data: JSON.stringify(data),
});

describe.each(cells)("from $from to $to", ({ from, to }) => {
  const answer = fc
    .constantFrom(0.1, 0.5)
    .chain((more) => anyOfType(schemas[vendorType(from, "Answer")], more))
    .map((body): JsonObject => ({ ...body, ...standard[from] }));
  const carry = testCarry(to, { stream_options: { include_usage: true } });

  test("a whole answer is one of the client's type, or could not be read", () => {
    fc.assert(
      fc.property(answer, (body) => {
        try {
          expect(judge(vendorType(to, "Answer"), convertWhole(from, body, carry))).toEqual([]);
        } catch (error) {
          if (!(error instanceof ApiError)) throw error;
        }
      }),
      { numRuns: runs(200) },
    );
  });

  test("a stream is a legal one of the client's type, to its end or its error", () => {
    fc.assert(
      fc.property(answer, (body) => {
        const { bytes, terminal, error } = convertStream(from, events[from](body).map(framed), carry);
        if (bytes === "") return;
        expect(faultsOf(bytes + terminal, carry, error === null ? "end" : "error")).toEqual([]);
        expect(streamFaults(judge, to, bytes + terminal)).toEqual([]);
      }),
      { numRuns: runs(200) },
    );
  });
});
