/** How many bytes of bodies this process may hold (rule 7.2). */
import { ByteBudget } from "../lib/byte-budget.ts";
import { metrics } from "../telemetry/metrics.ts";

/** Less holds too few of the largest bodies. */
const LEAST_BYTES = 256 * 1024 * 1024;

/**
 * A quarter of the memory limit, as a converted body stands in memory about three times (its bytes, its values, the
 * upstream's form). The values go onto V8's heap, so not more than half of what that may grow to.
 */
export const usualBodyBudget = (memoryLimit: number, heapLimit: number): number =>
  Math.max(LEAST_BYTES, Math.floor(Math.min(memoryLimit / 4, heapLimit / 2)));

/** A budget that metrics tell of. */
export function openBodyBudget(bytes: number): ByteBudget {
  const held = metrics.bodyBytes.series({});
  return new ByteBudget(bytes, {
    used: (used) => {
      held.value = used;
    },
    refused: (by) => metrics.refused.inc({ reason: `${by}_bytes` }),
  });
}
