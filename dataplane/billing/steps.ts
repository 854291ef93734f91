/** Named points between two writes of a charge's way (docs/decisions/money.md), at which tests kill the process. */
import { publisherOf } from "../lib/steps.ts";

export type MoneyStep =
  | "open.sent"
  | "open.held"
  | "heartbeat.done"
  | "advance.held"
  | "spend.noted"
  | "settle.sent"
  | "settle.charged"
  | "ledger.waiting"
  | "ledger.charged"
  | "ledger.told"
  | "drain.read"
  | "drain.stored"
  | "drain.done"
  | "sweep.done"
  | "keys.ended"
  | "directory.begun"
  | "directory.copied";

export const reachedMoneyStep: (step: MoneyStep) => void = publisherOf("gapura:money");
