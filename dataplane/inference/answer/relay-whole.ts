/** Relay of a whole answer: its bytes with the model's name patched (design.md §4.2). */
import type { UpstreamAnswer } from "../../upstream/request.ts";
import { INSPECT_HERE_BYTES } from "../large/large-body.ts";
import { passOn, type RelayJob } from "./answer-job.ts";
import { relayedWhole } from "./passed-on.ts";
import { readWhole } from "./read-whole.ts";

/** Relays a whole answer. @throws as `readWhole` does. */
export async function relayWhole(job: RelayJob, answer: UpstreamAnswer): Promise<void> {
  const { dialect, model, usage, seal, keepItem } = job;
  const facts = { dialect, model, usage, keepsItems: keepItem !== undefined };
  const passed = await readWhole(answer, job, {
    hereBytes: INSPECT_HERE_BYTES,
    here: (body) => relayedWhole(body, facts, seal),
    elsewhere: (large) => large.passedOn("relayAnswer", { facts, seals: seal !== null }),
  });
  await passOn(job, answer, passed, keepItem);
}
