/**
 * Flags of Node that our programs run with, as in the image's entry point: what V8 must know before its heap exists. The
 * programs set other flags themselves.
 *   --max-semi-space-size: Node 24 lets the young generation grow to 128 MiB; with 32 MiB a data plane under full load is
 *     resident with a fifth less (docs/performance.md, *Memory*). The old generation has Node's own limit, which follows the
 *     pod's memory limit.
 *   --heap-growing-percent: the old generation is collected when it has grown by 30%, not by what V8 thinks right for a
 *     browser; a quarter less is resident under full load (docs/performance.md, *Memory*).
 *   --no-memory-reducer-favors-memory: else V8, after eight seconds without requests, forgets the shapes of objects that
 *     do not live at that moment, and with them nearly all optimized code; the next requests cost three times as much
 *     (docs/performance.md, *After a pause*). It still collects garbage then.
 */
export const NODE_FLAGS: readonly string[] = [
  "--max-semi-space-size=16",
  "--heap-growing-percent=30",
  "--no-memory-reducer-favors-memory",
];

/**
 * Settings of glibc's allocator, as the image has them in its environment: two arenas, not eight for each core. Musl does not
 * read them. Fixed thresholds for what goes back to the system would spare more, and cost CPU (docs/performance.md, *Memory*).
 */
export const ALLOCATOR: Readonly<Record<string, string>> = {
  MALLOC_ARENA_MAX: "2",
};
