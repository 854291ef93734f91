/**
 * Refuses new work while this process cannot keep up, before waiting times explode: a client that is told to
 * come back in a second, or is sent elsewhere by its balancer, is better off than one in an endless line.
 */
import { monitorEventLoopDelay } from "node:perf_hooks";
import { getHeapStatistics } from "node:v8";
import { ApiError } from "../lib/api-error.ts";
import { collectAll } from "../lib/garbage.ts";
import { metrics } from "../telemetry/metrics.ts";
import { limits } from "./limits.ts";

export interface PressureProbe {
  /** Mean delay of the event loop since it was last asked, in milliseconds. */
  loopDelayMs(): number;
  /** Part of the heap's limit that is in use, 0 to 1. */
  heapShare(): number;
  /** Part of the process' memory limit that is resident, 0 to 1: bodies are outside of the heap. */
  residentShare(): number;
  /** Collects garbage soon. */
  collect(): void;
}

const SAMPLE_MS = 500;
const RESOLUTION_MS = 10;
/** Looks between two collections of the whole heap. */
const COLLECT_EVERY = 10;
/** Looks in a row that must find the event loop late: one alone may have seen a single pause, of a start or of the machine. */
const LATE_LOOKS = 2;

/** Measures this process. `memoryLimit` in bytes. */
export function processProbe(memoryLimit: number): PressureProbe & { stop(): void } {
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
    residentShare: () => process.memoryUsage.rss() / memoryLimit,
    collect: collectAll,
    stop: () => {
      delay.disable();
    },
  };
}

/** What this process has too much of: delay of the event loop, heap, resident memory. */
type Overload = "loop" | "heap" | "resident";

export class Pressure {
  readonly #probe: PressureProbe;
  #overload: Overload | null = null;
  /** Looks in a row that found too much resident memory. */
  #fullLooks = 0;
  /** Looks in a row that found the event loop late. */
  #lateLooks = 0;

  constructor(probe: PressureProbe) {
    this.#probe = probe;
  }

  /** Looks every half second. @returns the stop function. */
  start(): () => void {
    const timer = setInterval(() => this.sample(), SAMPLE_MS);
    timer.unref();
    return () => clearInterval(timer);
  }

  sample(): void {
    const full = this.#probe.residentShare() > limits.residentShare;
    const delayMs = this.#probe.loopDelayMs();
    metrics.loopLag.set(Math.max(0, delayMs) / 1000);
    this.#lateLooks = delayMs > limits.loopDelayMs ? this.#lateLooks + 1 : 0;
    if (this.#lateLooks >= LATE_LOOKS) this.#overload = "loop";
    else if (this.#probe.heapShare() > limits.heapShare) this.#overload = "heap";
    else this.#overload = full ? "resident" : null;
    // While everything is refused nothing is allocated, and V8 would never free the bodies of ended requests.
    if (full && this.#fullLooks % COLLECT_EVERY === 0) this.#probe.collect();
    this.#fullLooks = full ? this.#fullLooks + 1 : 0;
  }

  /** Whether the last look found too much work; then work that nobody waits for should not begin. */
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
