/** The named points of a request's way through the money, for tests that kill the process at one of them. */
import { publisherOf } from "../lib/steps.ts";

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

export const reached: (step: Step) => void = publisherOf("gapura:money");
