/** How far V8's heap may grow before it is collected as a whole. */
import { constants, PerformanceObserver, type PerformanceEntry } from "node:perf_hooks";
import { getHeapStatistics, setFlagsFromString } from "node:v8";

const MIB = 1024 * 1024;
/** What a heap of any size may grow by, in percent of what lives in it; `hack/node-flags.ts` starts programs with it. */
export const LEAST_GROWTH_PERCENT = 30;
const MOST_GROWTH_PERCENT = 100;
/** What a small heap may grow by. */
const SMALL_HEAP_GROWTH = 48 * MIB;

/** Percent that a heap may grow by in which so many bytes live. */
export function growthPercent(liveBytes: number): number {
  const percent = Math.round((100 * SMALL_HEAP_GROWTH) / liveBytes);
  return Math.max(LEAST_GROWTH_PERCENT, Math.min(MOST_GROWTH_PERCENT, percent));
}

/**
 * Lets a small heap grow by 48 MiB between two collections, after each for the next. A share alone is dear there: whoever has
 * 55 MiB alive and may make 16 of garbage marks three bytes for each (docs/decisions/performance.md).
 */
export function growByHeapSize(): void {
  let current = LEAST_GROWTH_PERCENT;
  const adapt = () => {
    const percent = growthPercent(getHeapStatistics().used_heap_size);
    if (percent === current) return;
    current = percent;
    // V8 reads it at the end of a collection, when it decides when the next one is due.
    setFlagsFromString(`--heap-growing-percent=${percent}`);
  };
  new PerformanceObserver((list) => {
    if (list.getEntries().some(isOfWholeHeap)) adapt();
  }).observe({ entryTypes: ["gc"] });
}

/** Whether an entry of `gc` tells of a collection of the whole heap. */
export function isOfWholeHeap(entry: PerformanceEntry): boolean {
  // Node's types leave `detail` out.
  const { detail } = entry as PerformanceEntry & { readonly detail: { readonly kind: number } };
  return detail.kind === constants.NODE_PERFORMANCE_GC_MAJOR;
}
