/**
 * CPU time of converting a request of 1 kB and its whole answer of 1 kB, for each cell: bytes in, bytes out.
 * `npm run bench -- whole-answers`.
 */
import type { Target } from "../../dataplane/dialects/codecs.ts";
import { dialectPath, dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { DropNotes } from "../../dataplane/dialects/losses.ts";
import type { JsonObject } from "../../dataplane/dialects/messages/types.ts";
import { codecs } from "../../dataplane/dialects/registry.ts";
import { testContext } from "../grammar/convert.ts";
import { answers, requestFor } from "./payloads.ts";

const ROUNDS = 20_000;
const wholeMode = { messages: "whole", chat: "json", responses: "response" } as const;
const target: Target = {
  upstreamModel: "upstream-model",
  maxOutputTokens: 8_192,
  samplingParameters: true,
  thinking: true,
  encryptedReasoning: true,
  ownAccount: false,
  imageInput: true,
  pdfInput: true,
};

const bodyOf = (message: Buffer): Buffer => message.subarray(message.indexOf("\r\n\r\n") + 4);
const parsed = (bytes: Buffer) => JSON.parse(bytes.toString("utf8")) as JsonObject;

/** @returns how many bytes were written. */
function convert(client: Dialect, upstream: Dialect, asked: Buffer, answered: Buffer): number {
  const context = testContext();
  const { request, carry } = codecs[client].readRequest(parsed(asked), context);
  const sent = codecs[upstream].writeRequest(request, carry, target, new DropNotes(false));
  const message = codecs[upstream].readResponse(parsed(answered), context);
  const answer = codecs[client].writeResponse(message, carry, context);
  return Buffer.from(JSON.stringify(sent)).length + Buffer.from(JSON.stringify(answer)).length;
}

console.log("µs of CPU per converted request and answer of 1 kB each");
for (const client of dialects)
  for (const upstream of dialects) {
    const asked = bodyOf(requestFor({ path: dialectPath[client], model: "m", stream: false }));
    const answered = bodyOf(answers[wholeMode[upstream]]);
    let written = 0;
    for (let round = 0; round < ROUNDS; round += 1) written += convert(client, upstream, asked, answered);
    const start = process.cpuUsage();
    for (let round = 0; round < ROUNDS; round += 1) written += convert(client, upstream, asked, answered);
    const { user, system } = process.cpuUsage(start);
    if (written === 0) throw new Error("nothing was written");
    console.log(
      `${client.padEnd(9)} client, ${upstream.padEnd(9)} upstream ${((user + system) / ROUNDS).toFixed(1)}`,
    );
  }
