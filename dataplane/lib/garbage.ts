/** Collects garbage where V8 would wait too long: Buffers lie outside its heap and hardly count for it. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

const collect = collector();

/** `gc()` of V8: a context that is created while the flag is set has it. */
function collector() {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc") as (options: NodeJS.GCOptions) => unknown;
  setFlagsFromString("--no-expose-gc");
  return gc;
}

/** Collects the whole heap, which takes a tenth of a second or more, in a task of its own. */
export function collectAll(): void {
  collect({ execution: "async" });
}

/** Bytes between two collections of the young generation, which take a millisecond or two. At full speed that is some 50 ms. */
const COLLECT_YOUNG_AFTER = 8 * 1024 * 1024;

let moved = 0;

/**
 * Counts `bytes` of file content that moved through the process, and collects the young generation every 8 MiB: V8 by itself
 * lets 64 MiB of dead young buffers stay resident, whatever its flags say.
 */
export function countMoved(bytes: number): void {
  moved += bytes;
  if (moved < COLLECT_YOUNG_AFTER) return;
  moved = 0;
  collect({ type: "minor" });
}
