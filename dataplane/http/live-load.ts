/** What batches give way to: whether live requests come in, and how much of its time the process still has. */
import { performance, type EventLoopUtilization } from "node:perf_hooks";
import type { LiveLoad } from "../batches/worker/headroom.ts";

/** This long after the last live request the process counts as waited for. */
const LIVE_MS = 2_000;
/** Beyond this share of work in the event loop's time, waiting for a turn is felt. */
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

  /** Since it was last asked. */
  load(): LiveLoad {
    const share = this.#probe.busyShare();
    if (this.#probe.now() - this.#lastAt > LIVE_MS) return "none";
    return share > HEAVY_SHARE ? "heavy" : "light";
  }
}
