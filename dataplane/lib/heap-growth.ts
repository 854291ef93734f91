/** How far V8's heap may grow before it is collected as a whole. */
import { PerformanceObserver } from "node:perf_hooks";
import { getHeapStatistics, setFlagsFromString } from "node:v8";

const MIB = 1024 * 1024;
/** What a heap of any size may grow by, in percent of what lives in it; `hack/node-flags.ts` starts programs with it. */
export const LEAST_GROWTH_PERCENT = 30;
const MOST_GROWTH_PERCENT = 100;
/** A small heap may grow by as many percent as this is of what it uses. */
const SMALL_HEAP_GROWTH = 48 * MIB;

/** Percent that a heap may grow by of which so many bytes are used. */
export function growthPercent(usedBytes: number): number {
  const percent = Math.round((100 * SMALL_HEAP_GROWTH) / usedBytes);
  return Math.max(LEAST_GROWTH_PERCENT, Math.min(MOST_GROWTH_PERCENT, percent));
}

/**
 * Lets a small heap grow further between two collections of all of it than its share. A share alone is dear there: whoever has
 * 55 MiB alive and may make 16 of garbage marks three bytes for each (docs/decisions/performance.md).
 */
export function growByHeapSize(): void {
  let current = LEAST_GROWTH_PERCENT;
  // After each collection, most of them of the young generation alone, so that a heap that has become large is known for it
  // when V8 reads the flag: at the end of the next collection of all, to decide how far the heap may grow from there.
  new PerformanceObserver(() => {
    const percent = growthPercent(getHeapStatistics().used_heap_size);
    if (percent === current) return;
    current = percent;
    setFlagsFromString(`--heap-growing-percent=${percent}`);
  }).observe({ entryTypes: ["gc"] });
}
