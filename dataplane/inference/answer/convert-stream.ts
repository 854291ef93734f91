/** Convert: an upstream's stream becomes the client's through Messages form (design.md §4.4). */
import { codecs } from "../../dialects/registry.ts";
import { withToldPlaces } from "../../dialects/told-places.ts";
import { writeEvents } from "../../dialects/write-events.ts";
import type { UpstreamAnswer } from "../../upstream/request.ts";
import { LeanEvents } from "../large/large-event.ts";
import type { ConvertJob } from "./answer-job.ts";
import { ClientStream } from "./client-stream.ts";
import { EventTranslator } from "./event-translator.ts";
import { ResponseStream } from "./response-stream.ts";
import { streamTurns } from "./stream-turns.ts";

/**
 * Converts a stream. Resolves when it is over, however it ended.
 * @throws AttemptFailure while nothing has been sent to the client.
 */
export function convertStream(job: ConvertJob, answer: UpstreamAnswer): Promise<void> {
  const { upstream } = answer;
  const { carry, context } = job.conversion;
  const lean = new LeanEvents(job.place, job.lease, { dialect: upstream.dialect, isRelayed: false });
  const writer = codecs[carry.dialect].writeStream(carry, context);
  const client = new ClientStream(job, upstream.name, (error) =>
    writer.fail(withToldPlaces(error, job.places)),
  );
  return new ResponseStream(
    answer,
    client,
    streamTurns.owner(job.organizationId),
    job.lease,
    (stream) =>
      new EventTranslator(stream, upstream.dialect, job.conversion.reading(upstream), lean, {
        writer,
        say: (events) => {
          const { bytes, terminal } = writeEvents(writer, events);
          if (bytes !== "") stream.pass(bytes);
          if (terminal !== "") stream.finish(terminal);
        },
      }),
  ).run();
}
