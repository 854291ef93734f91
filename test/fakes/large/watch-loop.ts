/** How long this thread's event loop is held, judged so that other processes of a busy machine do not count. */
import { computedMs } from "../computed.ts";

/**
 * Runs `work` and tells the most CPU time that one turn of the event loop took meanwhile, in milliseconds. Waiting for
 * a core counts for nothing; several callbacks of one turn count together, so that it says rather too much.
 */
export async function longestHoldMs(work: () => Promise<unknown>): Promise<number> {
  let longest = 0;
  let cpu = computedMs();
  let wall = performance.now();
  const timer = setInterval(() => {
    const [nowCpu, nowWall] = [computedMs(), performance.now()];
    // Either clock may be ahead of the other by its resolution.
    longest = Math.max(longest, Math.min(nowCpu - cpu, nowWall - wall));
    [cpu, wall] = [nowCpu, nowWall];
  }, 1);
  try {
    await work();
    // What was held last shows in the turn after it.
    await new Promise((resolve) => setTimeout(resolve, 5));
  } finally {
    clearInterval(timer);
  }
  return longest;
}
