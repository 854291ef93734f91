/** For tests that judge by the day, or the month, that now is in (UTC). */
import { setTimeout as sleep } from "node:timers/promises";
import { DAY_MS } from "../../dataplane/lib/clock.ts";

/** Waits for tomorrow where today ends within so long: whatever takes no longer than that sees one date. */
export async function withinOneDay(takesMs: number, now: () => number = Date.now): Promise<void> {
  for (let left = leftOfDay(now()); left <= takesMs; left = leftOfDay(now())) await sleep(left);
}

const leftOfDay = (unixMs: number) => DAY_MS - (unixMs % DAY_MS);
