import { setTimeout as sleep } from "node:timers/promises";
import type { AdmitToolCall } from "../tools/call-limit.ts";

/** Of a minute's tool calls batches leave a fifth to requests that somebody waits for. */
const SHARE = 0.8;
const PAUSE_MS = 500;
/** Then the call gets `too_many_requests` after all; a route's request time-out is ten minutes. */
const LONGEST_MS = 5 * 60_000;

/**
 * The tool-call limit of batch items: instead of failing, a call waits until the last minute has room for it, so
 * that no answer is spent on `too_many_requests` (rule 4.5).
 */
export function patientCallLimit(admit: AdmitToolCall, pauseMs = PAUSE_MS): AdmitToolCall {
  return async (organizationId, limit) => {
    const own = Math.max(1, Math.floor(limit * SHARE));
    for (let waited = 0; ; waited += pauseMs) {
      if (await admit(organizationId, own)) return true;
      if (waited >= LONGEST_MS) return false;
      await sleep(pauseMs);
    }
  };
}
