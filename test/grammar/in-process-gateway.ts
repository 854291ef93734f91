/**
 * Both halves of the codecs between a client library and a scripted upstream of any dialect, as a `fetch`: what
 * the library sends is read, written for the upstream, answered by the script, and written for the library.
 */
import { requestCodecs } from "../../dataplane/dialects/request-codecs.ts";
import { dialectPath, dialects } from "../../dataplane/dialects/dialect.ts";
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import { DropNotes } from "../../dataplane/dialects/losses.ts";
import { answerCodecs } from "../../dataplane/dialects/answer-codecs.ts";
import type { JsonObject } from "../../dataplane/dialects/messages/types.ts";
import { eventsOf, faultsOf, testContext } from "./convert.ts";
import { scriptedBody, scriptedStream } from "./scripted-answer.ts";
import type { Cut, ScriptedAnswer } from "./scripted-answer.ts";

export interface InProcessGateway {
  readonly fetch: typeof fetch;
  /** The upstream bodies so far. */
  readonly asked: JsonObject[];
  /** Faults of all streams that were sent. */
  readonly faults: string[];
}

const target = {
  upstreamModel: "upstream-model",
  maxOutputTokens: 8_192,
  samplingParameters: true,
  encryptedReasoning: true,
  thinking: true,
  imageInput: true,
  pdfInput: true,
};

const inThrees: Cut = (text) =>
  Array.from({ length: Math.ceil(text.length / 3) }, (_, index) => text.slice(index * 3, index * 3 + 3));

/** `script`: the answer to the upstream's n-th request, from 0. */
export function inProcessGateway(
  upstream: Dialect,
  script: (turn: number, body: JsonObject) => ScriptedAnswer,
): InProcessGateway {
  const asked: JsonObject[] = [];
  const faults: string[] = [];
  const context = testContext();

  function answer(client: Dialect, body: JsonObject): Response {
    const { request, carry } = requestCodecs[client].readRequest(body, context);
    const upstreamBody = requestCodecs[upstream].writeRequest(request, carry, target, new DropNotes(false));
    const said = script(asked.length, upstreamBody);
    asked.push(upstreamBody);
    if (body["stream"] !== true) {
      const response = answerCodecs[upstream].readResponse(scriptedBody[upstream](said), context);
      return Response.json(answerCodecs[client].writeResponse(response, carry, context));
    }
    const reader = answerCodecs[upstream].readStream(context);
    const writer = answerCodecs[client].writeStream(carry, context);
    let stream = "";
    for (const event of eventsOf(scriptedStream[upstream](said, inThrees))) {
      const { bytes, terminal } = writer.write(reader.step(event));
      stream += bytes + terminal;
    }
    faults.push(...faultsOf(stream, carry, "end"));
    return new Response(stream, { headers: { "content-type": "text/event-stream; charset=utf-8" } });
  }

  return {
    asked,
    faults,
    fetch: async (input: string | URL | Request, init?: RequestInit) => {
      const request = new Request(input, init);
      const path = new URL(request.url).pathname;
      const client = dialects.find((dialect) => path === dialectPath[dialect]);
      if (client === undefined) throw new Error(`no such path: ${path}`);
      return answer(client, (await request.json()) as JsonObject);
    },
  };
}
