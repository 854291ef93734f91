/** When V8 collects garbage, where it would not by itself: buffers are not in its heap, and it waits long with them. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

const collect = collector();

/** V8 gives its collector to a context that is made while the flag is set. */
function collector() {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc") as (options: NodeJS.GCOptions) => unknown;
  setFlagsFromString("--no-expose-gc");
  return gc;
}

/** The whole heap: a tenth of a second and more, in a task of its own. */
export function collectAll(): void {
  collect({ execution: "async" });
}

/** Bytes between two collections of the young generation, of a millisecond or two each. At full speed that is some 50 ms. */
const COLLECT_YOUNG_AFTER = 8 * 1024 * 1024;

let moved = 0;

/**
 * `bytes` of large contents moved through the process. The young generation is collected every 8 MiB: V8 alone lets 64 MiB
 * of young buffers wait, whatever its flags say, and all of them are resident.
 */
export function countMoved(bytes: number): void {
  moved += bytes;
  if (moved < COLLECT_YOUNG_AFTER) return;
  moved = 0;
  collect({ type: "minor" });
}
