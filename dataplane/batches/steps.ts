/**
 * The named points of a batch's way, one for each write, for tests that kill the process at one of them.
 * `written`: inside the transaction, before its commit; `done`: after it, before anything else is told of it.
 */
import { publisherOf } from "../lib/steps.ts";

export const steps = [
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
export type Step = (typeof steps)[number];

export const reached: (step: Step) => void = publisherOf("gapura:batches");
