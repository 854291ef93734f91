/** Runs whose outcome hangs on time-outs say nothing of the product when the machine itself stood still for as long. */
import { computedMs } from "./computed.ts";

const RUNS = 4;
const LOOK_MS = 10;

/**
 * The outcome of a run in which this thread was never kept from a core for half of any `mostPauseMs`, in one piece or in many; of
 * the fourth run if the machine is never so steady. A thread that is busy for as long is no excuse: that may be the product's fault. What the run
 * asks of its outcome stands outside, and holds for whichever this is.
 */
export async function whileSteady<Outcome>(
  mostPauseMs: number,
  run: () => Promise<Outcome>,
): Promise<Outcome> {
  for (let number = 1; ; number += 1) {
    const most = mostStandstill(mostPauseMs);
    const outcome = await run().finally(most.stop);
    if (most.ms < mostPauseMs / 2 || number === RUNS) return outcome;
    process.stderr.write(
      `steady: run ${number} begins again, for this thread stood still for ${most.ms.toFixed(0)} of ${mostPauseMs} ms\n`,
    );
  }
}

/** Of the time between two looks, what this thread neither computed nor meant to wait. */
export const standstillMs = (passedMs: number, computedMs: number): number =>
  Math.max(0, passedMs - computedMs - LOOK_MS);

/** The most that this thread stands still of any `withinMs`. */
function mostStandstill(withinMs: number) {
  let [at, busy, value] = [performance.now(), computedMs(), 0];
  /** The standstills of the last `withinMs`, and their sum. */
  const recent: { until: number; ms: number }[] = [];
  let sum = 0;
  const timer = setInterval(() => {
    const [now, nowBusy] = [performance.now(), computedMs()];
    const ms = standstillMs(now - at, nowBusy - busy);
    recent.push({ until: now, ms });
    sum += ms;
    while (recent[0] !== undefined && recent[0].until <= now - withinMs) sum -= recent.shift()?.ms ?? 0;
    value = Math.max(value, sum);
    [at, busy] = [now, nowBusy];
  }, LOOK_MS);
  return {
    get ms() {
      return value;
    },
    stop: () => clearInterval(timer),
  };
}
