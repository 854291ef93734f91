/**
 * Refuses new inference while this process cannot keep up, before waiting times explode: a client that is told to
 * come back in a second, or is sent elsewhere by its balancer, is better off than one in an endless line.
 */
import { monitorEventLoopDelay } from "node:perf_hooks";
import { getHeapStatistics } from "node:v8";
import { ApiError } from "../lib/api-error.ts";
import { metrics } from "../telemetry/metrics.ts";
import { limits } from "./limits.ts";

export interface PressureProbe {
  /** Mean delay of the event loop since it was last asked, in milliseconds. */
  loopDelayMs(): number;
  /** Part of the heap's limit that is in use, 0 to 1. */
  heapShare(): number;
}

const SAMPLE_MS = 500;
const RESOLUTION_MS = 10;

/** Measures this process. */
export function processProbe(): PressureProbe & { stop(): void } {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delay.enable();
  return {
    loopDelayMs: () => {
      const mean = delay.count === 0 ? 0 : delay.mean / 1e6 - RESOLUTION_MS;
      delay.reset();
      return mean;
    },
    heapShare: () => {
      const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
      return used / limit;
    },
    stop: () => void delay.disable(),
  };
}

export class Pressure {
  readonly #probe: PressureProbe;
  #overload: "loop" | "memory" | null = null;

  constructor(probe: PressureProbe) {
    this.#probe = probe;
  }

  /** Looks every half second. @returns stops it. */
  start(): () => void {
    const timer = setInterval(() => this.sample(), SAMPLE_MS);
    timer.unref();
    return () => clearInterval(timer);
  }

  sample(): void {
    if (this.#probe.loopDelayMs() > limits.loopDelayMs) this.#overload = "loop";
    else this.#overload = this.#probe.heapShare() > limits.heapShare ? "memory" : null;
  }

  /** The last look found too much work: what nobody waits for should not begin now. */
  get overloaded(): boolean {
    return this.#overload !== null;
  }

  /** @throws ApiError 503 with `retry-after` while the last look found too much work. */
  shed(): void {
    if (this.#overload === null) return;
    metrics.shed.inc({ reason: this.#overload });
    throw new ApiError("unavailable", "The service is overloaded; try again in a moment.", {
      retryAfterSeconds: 1,
    });
  }
}
