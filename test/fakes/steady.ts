/** Runs whose outcome hangs on time-outs say nothing of the product when the machine itself stood still for as long. */
import { computedMs } from "./computed.ts";

const RUNS = 4;
const LOOK_MS = 10;

/**
 * The outcome of a run during which this thread was never kept from a core for `mostPauseMs` or longer; of the fourth run if the
 * machine is never so steady. A thread that is busy for as long is no excuse: that may be the product's fault. What the run
 * asks of its outcome stands outside, and holds for whichever this is.
 */
export async function whileSteady<Outcome>(
  mostPauseMs: number,
  run: () => Promise<Outcome>,
): Promise<Outcome> {
  for (let number = 1; ; number += 1) {
    const longest = longestStandstill();
    const outcome = await run().finally(longest.stop);
    if (longest.ms < mostPauseMs || number === RUNS) return outcome;
    process.stderr.write(
      `steady: run ${number} begins again, for this thread stood still for ${longest.ms.toFixed(0)} ms\n`,
    );
  }
}

/** Of the time between two looks, what this thread neither computed nor meant to wait. */
export const standstillMs = (passedMs: number, computedMs: number): number =>
  Math.max(0, passedMs - computedMs - LOOK_MS);

function longestStandstill() {
  let [at, busy, value] = [performance.now(), computedMs(), 0];
  const timer = setInterval(() => {
    const [now, nowBusy] = [performance.now(), computedMs()];
    value = Math.max(value, standstillMs(now - at, nowBusy - busy));
    [at, busy] = [now, nowBusy];
  }, LOOK_MS);
  return {
    get ms() {
      return value;
    },
    stop: () => clearInterval(timer),
  };
}
