/**
 * Named points in the life of a batch, one for each write; tests kill the process at one of them.
 * `written`: inside the transaction, before its commit; `done`: after the commit, before anything else learns of it.
 */
import { publisherOf } from "../lib/steps.ts";

const batchSteps = [
  "create.stored",
  "validate.stored",
  "validate.done",
  "claim.done",
  "item.answered",
  "settle.written",
  "settle.done",
  "leases.written",
  "leases.done",
  "cancel.written",
  "cancel.done",
  "expire.written",
  "expire.done",
  "close.done",
  "finish.files",
  "finish.written",
  "finish.done",
  "sweep.removed",
] as const;
export type BatchStep = (typeof batchSteps)[number];

export const reachedBatchStep: (step: BatchStep) => void = publisherOf("gapura:batches");
