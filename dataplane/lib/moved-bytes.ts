/**
 * What moves large contents through the process says so here, that their buffers are collected early. V8 lets 64 MiB of young
 * ones wait whatever its flags say, since they are not in its heap; that is as much resident memory, at whatever pace it moves.
 */
/** A collection of the young generation takes a millisecond or two; so much moves in some 50 ms. */
const COLLECT_AFTER = 8 * 1024 * 1024;

let moved = 0;

/** `bytes` of contents were read or written. Without Node's `--expose-gc` (hack/node-flags.ts) V8 decides alone. */
export function countMoved(bytes: number): void {
  moved += bytes;
  if (moved < COLLECT_AFTER) return;
  moved = 0;
  globalThis.gc?.({ type: "minor" });
}
