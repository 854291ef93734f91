/** The live load, which batches give way to: whether live requests come in, and whether the event loop has time left. */
import { performance, type EventLoopUtilization } from "node:perf_hooks";
import type { LiveLoad } from "../batches/worker/headroom.ts";

/** For this long after a live request came the process counts as under live load. */
const LIVE_MS = 2_000;
/** Share of the event loop's time at work beyond which waiting for a turn is felt. */
const HEAVY_SHARE = 0.5;

export interface LoopProbe {
  /** Milliseconds of a clock that never goes back. */
  now(): number;
  /** Share of the time since it was last asked in which the event loop worked, 0 to 1. */
  busyShare(): number;
}

/** Measures this process. */
export function loopProbe(): LoopProbe {
  let since: EventLoopUtilization = performance.eventLoopUtilization();
  return {
    now: () => performance.now(),
    busyShare: () => {
      const now = performance.eventLoopUtilization();
      const { utilization } = performance.eventLoopUtilization(now, since);
      since = now;
      return utilization;
    },
  };
}

export class LiveRequests {
  readonly #probe: LoopProbe;
  #lastAt = Number.NEGATIVE_INFINITY;

  constructor(probe: LoopProbe) {
    this.#probe = probe;
  }

  arrived(): void {
    this.#lastAt = this.#probe.now();
  }

  /** The load since the last call. */
  load(): LiveLoad {
    const share = this.#probe.busyShare();
    if (this.#probe.now() - this.#lastAt > LIVE_MS) return "none";
    return share > HEAVY_SHARE ? "heavy" : "light";
  }
}
