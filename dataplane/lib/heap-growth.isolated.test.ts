import { constants, PerformanceObserver, type PerformanceEntry } from "node:perf_hooks";
import { setImmediate as turn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { expect, test } from "vitest";
import { growByHeapSize, LEAST_GROWTH_PERCENT } from "./heap-growth.ts";

/** Node's types leave `detail` out. */
const isOfWholeHeap = (entry: PerformanceEntry): boolean =>
  (entry as PerformanceEntry & { readonly detail: { readonly kind: number } }).detail.kind ===
  constants.NODE_PERFORMANCE_GC_MAJOR;

/** Collections of the whole heap while a process keeps each of many objects until thousands came after it. */
async function collections(): Promise<number> {
  let count = 0;
  const observer = new PerformanceObserver((list) => {
    count += list.getEntries().filter(isOfWholeHeap).length;
  });
  observer.observe({ entryTypes: ["gc"] });
  const kept: string[][] = [];
  for (let n = 0; n < 3_000_000; n += 1) {
    kept[n % 400_000] = [String(n)];
    if (n % 10_000 === 0) await turn();
  }
  await turn();
  observer.disconnect();
  return count;
}

test("a small heap is collected less often than by its share alone", async () => {
  setFlagsFromString(`--heap-growing-percent=${LEAST_GROWTH_PERCENT}`);
  const before = await collections();
  growByHeapSize();
  await collections();
  expect(await collections()).toBeLessThan(before * 0.6);
});
