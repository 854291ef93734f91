/** Convert: a whole answer of an upstream becomes the client's through Messages form (design.md §4.3). */
import type { UpstreamAnswer } from "../../upstream/request.ts";
import { CONVERT_HERE_BYTES } from "../large/large-body.ts";
import { remoteCarry, remoteContext } from "../large/remote-reading.ts";
import { passOn, type ConvertJob } from "./answer-job.ts";
import { convertedWhole } from "./passed-on.ts";
import { readWhole } from "./read-whole.ts";

/** Converts a whole answer. @throws as `readWhole` does. */
export async function convertWhole(job: ConvertJob, answer: UpstreamAnswer): Promise<void> {
  const { dialect: client, place, lease, conversion } = job;
  const { carry } = conversion;
  const { dialect } = answer.upstream;
  const context = conversion.reading(answer.upstream);
  const passed = await readWhole(
    answer,
    { dialect: client, place, lease, usage: context },
    {
      hereBytes: CONVERT_HERE_BYTES,
      here: (body) => convertedWhole(dialect, body, carry, context),
      elsewhere: (large) =>
        large.passedOn("convertAnswer", {
          dialect,
          carry: remoteCarry(carry),
          context: remoteContext(context),
        }),
    },
  );
  await passOn(job, answer, passed, context.keepItem);
}
