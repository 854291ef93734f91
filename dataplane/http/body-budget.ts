/** How many bytes of bodies this process may hold (rule 7.2). */
import { ByteBudget } from "../lib/byte-budget.ts";
import { metrics } from "../telemetry/metrics.ts";

/** Least budget: less holds too few of the largest bodies. */
const LEAST_BYTES = 256 * 1024 * 1024;

/**
 * The usual budget in bytes: a quarter of the memory limit, as a converted body is in memory about three times (its bytes, its
 * values, the upstream's form), and at most half of V8's heap limit, as the values are on that heap.
 */
export const usualBodyBudget = (memoryLimit: number, heapLimit: number): number =>
  Math.max(LEAST_BYTES, Math.floor(Math.min(memoryLimit / 4, heapLimit / 2)));

/** A budget that reports to the metrics. */
export function openBodyBudget(bytes: number): ByteBudget {
  const held = metrics.bodyBytes.series({});
  return new ByteBudget(bytes, {
    used: (used) => {
      held.value = used;
    },
    refused: (by) => metrics.refused.inc({ reason: `${by}_bytes` }),
  });
}
