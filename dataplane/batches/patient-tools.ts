import { setTimeout as sleep } from "node:timers/promises";
import type { Clock } from "../lib/clock.ts";
import type { AdmitToolCall } from "../tools/call-limit.ts";

/** Of a minute's tool calls batches leave a fifth to requests that somebody waits for. */
const SHARE = 0.8;
const PAUSE_MS = 500;

/**
 * The tool-call limit of batch items: instead of failing, a call waits until the last minute has room for it, so
 * that no answer is spent on `too_many_requests` (rule 4.5). A few dozen items that each search a few times wait for
 * many minutes, so it waits as long as its batch has time; then the item has to come to its end.
 */
export function patientCallLimit(
  admit: AdmitToolCall,
  clock: Clock,
  pause: () => Promise<unknown> = () => sleep(PAUSE_MS),
): AdmitToolCall {
  return async (organizationId, limit, until) => {
    const own = Math.max(1, Math.floor(limit * SHARE));
    for (;;) {
      if (await admit(organizationId, own)) return true;
      if (clock.now() >= (until ?? 0)) return false;
      await pause();
    }
  };
}
