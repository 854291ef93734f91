/**
 * Lowers the priority of threads and processes below that of the main thread, which serves everybody: with few cores, the
 * work of one caller (counting, parsing, decompressing, reading pages) must not keep others waiting.
 */
import { readFileSync, readdirSync } from "node:fs";
import { constants, platform, setPriority } from "node:os";

const BEHIND = constants.priority.PRIORITY_BELOW_NORMAL;
const TASKS = "/proc/self/task";
/** Node's name for the threads of its pool, which decompress bodies, access files and resolve names. */
const POOL_THREAD = "libuv-worker";

/** Lowers the priority of the calling thread. Only Linux can do so for a single thread; elsewhere nothing changes. */
export function stepBack(): void {
  if (platform() === "linux") lower(0);
}

/** Lowers the priority of the calling process and of all threads that it creates from now on. */
export function processStepsBack(): void {
  lower(0);
}

/** Lowers the priority of the threads of Node's pool, which exist once the pool was used. @returns their number. */
export function poolStepsBack(): number {
  if (platform() !== "linux") return 0;
  const threads = readdirSync(TASKS).filter((thread) => nameOf(thread) === POOL_THREAD);
  for (const thread of threads) lower(Number(thread));
  return threads.length;
}

function nameOf(thread: string): string {
  try {
    return readFileSync(`${TASKS}/${thread}/comm`, "utf8").trim();
  } catch {
    // It has ended.
    return "";
  }
}

function lower(thread: number): void {
  try {
    setPriority(thread, BEHIND);
  } catch {
    // The work is done just the same at normal priority.
  }
}
