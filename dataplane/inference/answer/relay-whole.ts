/** Relay of a whole answer: its bytes with the model's name patched (design.md §4.2). */
import { objectOf, parseJson } from "../../dialects/fields.ts";
import { codecs } from "../../dialects/registry.ts";
import { corruptAnswer } from "../../dialects/upstream-error.ts";
import { countedUsage } from "../../dialects/usage.ts";
import { splice, type Edit } from "../../lib/json-splice.ts";
import type { UpstreamAnswer } from "../../upstream/request.ts";
import { settle, type RelayJob } from "./answer-job.ts";
import { sendWhole } from "../call.ts";
import { wholeSealEdits } from "./seal-answer.ts";
import { inspectWhole, readWhole, type WholeInspection } from "./whole-answer.ts";

/** Relays a whole answer. @throws as `readWhole` does. */
export async function relayWhole(job: RelayJob, answer: UpstreamAnswer): Promise<void> {
  const { dialect, model, keepItem, seal } = job;
  const { body, read: seen } = await readWhole(answer, dialect, job.usage, (bytes) => {
    const look = inspectWhole(dialect, bytes, model, keepItem, seal);
    if (!look.complete || look.failed) throw corruptAnswer("its mandatory parts are missing, or it failed");
    return look;
  });
  answer.accepted();
  const bytes = splice(body, wholeEdits(job, seen, body));
  const written = () => codecs[dialect].written(objectOf(parseJson(body.toString("utf8"))) ?? {});
  const usage = countedUsage(seen.usage, job.usage, written, true, seen.tier);
  await settle(job, usage, answer.upstream.name, "ok");
  sendWhole(job.sink, bytes, job.headers);
}

function wholeEdits({ dialect, model, seal }: RelayJob, seen: WholeInspection, body: Buffer): Edit[] {
  const edits = seal === null ? [] : wholeSealEdits(dialect, body, seal);
  if (seen.model !== null) edits.push({ ...seen.model, text: JSON.stringify(model) });
  edits.push(...seen.annotations);
  return edits;
}
