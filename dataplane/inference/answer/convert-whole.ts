/** Convert: a whole answer of an upstream becomes the client's through Messages form (design.md §4.3). */
import { codecs } from "../../dialects/registry.ts";
import type { UpstreamAnswer } from "../../upstream/request.ts";
import { settle, type ConvertJob } from "./answer-job.ts";
import { sendWhole } from "../call.ts";
import { readConverted } from "./whole-answer.ts";

/** Converts a whole answer. @throws as `readWhole` does. */
export async function convertWhole(job: ConvertJob, answer: UpstreamAnswer): Promise<void> {
  const { conversion, sink, headers } = job;
  const { carry, context } = conversion;
  const message = await readConverted(answer, carry.dialect, conversion.reading(answer.upstream));
  answer.accepted();
  const bytes = Buffer.from(JSON.stringify(codecs[carry.dialect].writeResponse(message, carry, context)));
  await settle(job, message.usage, answer.upstream.name, "ok");
  sendWhole(sink, bytes, headers);
}
