/**
 * Threads and processes that step behind the main thread, which serves everybody: where cores are scarce what one caller
 * gives them to do (counting, parsing, unpacking, reading pages) must not keep others waiting.
 */
import { readFileSync, readdirSync } from "node:fs";
import { constants, platform, setPriority } from "node:os";

const BEHIND = constants.priority.PRIORITY_BELOW_NORMAL;
const TASKS = "/proc/self/task";
/** Node's name for the threads that unpack bodies, read and write files and look names up. */
const POOL_THREAD = "libuv-worker";

/** The calling thread. Only Linux can say so of one thread; elsewhere it is left as it is. */
export function stepBack(): void {
  if (platform() === "linux") lower(0);
}

/** The calling process, with all threads that it makes from here on. */
export function processStepsBack(): void {
  lower(0);
}

/** The threads of Node's pool, which are there once it was used. @returns how many. */
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
    // The work is done all the same without a lower priority.
  }
}
