/** Runs whose outcome hangs on time-outs say nothing of the product when the machine itself stood still for as long. */
import { monitorEventLoopDelay } from "node:perf_hooks";

const RUNS = 4;

/**
 * The outcome of a run during which this process never stood still for `mostPauseMs` or longer; of the fourth run if the
 * machine is never so steady. What the run asks of its outcome stands outside, and holds for whichever this is.
 */
export async function whileSteady<Outcome>(
  mostPauseMs: number,
  run: () => Promise<Outcome>,
): Promise<Outcome> {
  for (let number = 1; ; number += 1) {
    const pauses = monitorEventLoopDelay({ resolution: 10 });
    pauses.enable();
    const outcome = await run();
    pauses.disable();
    const longestMs = pauses.max / 1e6;
    if (longestMs < mostPauseMs || number === RUNS) return outcome;
    process.stderr.write(
      `steady: run ${number} begins again, for this process stood still for ${longestMs.toFixed(0)} ms\n`,
    );
  }
}
