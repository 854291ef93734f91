/**
 * The named points of a request's way through the money, for tests that kill the process at one of them
 * (test/chaos). Published on a diagnostics channel: without a subscriber it costs nothing.
 */
import { channel } from "node:diagnostics_channel";

export type Step =
  | "open.sent"
  | "open.held"
  | "advance.held"
  | "settle.sent"
  | "settle.charged"
  | "ledger.charged"
  | "drain.read"
  | "drain.stored"
  | "drain.done"
  | "sweep.done";

const steps = channel("gapura:money");

export function reached(step: Step): void {
  if (steps.hasSubscribers) steps.publish(step);
}
