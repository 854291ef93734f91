/**
 * The message that a receiver gets (rule 9.8), in the form of Standard Webhooks:
 * https://www.standardwebhooks.com. Pure.
 */
import { Webhook } from "standardwebhooks";
import { creditsText } from "../billing/credits.ts";
import { anewText } from "../billing/scopes.ts";
import { DAY_MS } from "../lib/clock.ts";

/** A threshold that was crossed; amounts in micro-credits. */
export interface ThresholdMessage {
  readonly id: string;
  readonly organizationId: string;
  readonly scope: "organization" | "project" | "key";
  readonly scopeId: string;
  /** null: an organization's balance since its last grant. */
  readonly per: string | null;
  /** The day after its window, since 1970; null: it has no end. */
  readonly toDay: number | null;
  /** Per cent. */
  readonly threshold: number;
  readonly amount: bigint;
  readonly spent: bigint;
  /** Unix milliseconds. */
  readonly crossedAt: number;
}

/** Makes the body, the same at each try. */
export function messageBody(message: ThresholdMessage): string {
  const { organizationId, scope, scopeId, per, toDay, threshold, amount, spent, crossedAt } = message;
  return JSON.stringify({
    type: "credit.threshold",
    timestamp: new Date(crossedAt).toISOString(),
    data: {
      organization_id: organizationId,
      scope,
      id: scopeId,
      per,
      threshold,
      amount: creditsText(amount),
      spent: creditsText(spent),
      begins_anew_at: anewText(toDay === null ? null : toDay * DAY_MS),
    },
  });
}

/** Makes the signer of messages; null: the secret cannot sign. */
export function signerOf(secret: string): Webhook | null {
  try {
    return new Webhook(secret);
  } catch {
    return null;
  }
}

/** Makes the headers. `at`: Unix milliseconds of this try; receivers refuse old ones. */
export function messageHeaders(
  id: string,
  at: number,
  body: string,
  signer: Webhook,
): Record<string, string> {
  return {
    "content-type": "application/json",
    "user-agent": "gapura",
    "webhook-id": id,
    "webhook-timestamp": String(Math.floor(at / 1000)),
    "webhook-signature": signer.sign(id, new Date(at), body),
  };
}
