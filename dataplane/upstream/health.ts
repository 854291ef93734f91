/**
 * Passive health (rule 1.14): an upstream that keeps failing is taken out for a while, longer each time, and one
 * success brings it back. Each process learns by itself from its own traffic.
 */
import type { Route, Upstream } from "../config/schema.ts";
import type { Clock } from "../lib/clock.ts";
import { metrics } from "../telemetry/metrics.ts";
import { inTraffic } from "./pick.ts";

/** So many failures in a row take an upstream out. */
export const FAILURES_TO_EJECT = 5;
export const EJECTION_MS = { first: 10_000, most: 60_000 } as const;
/** A probe of an upstream whose ejection ran out holds the others back for no longer than this. */
const PROBE_MS = 10_000;
/** Only upstreams in trouble are remembered; beyond this number the oldest trouble is forgotten. */
const MAX_TROUBLES = 10_000;

interface Trouble {
  readonly labels: { readonly model: string; readonly upstream: string };
  failures: number;
  /** How often it was taken out since it last answered. */
  ejections: number;
  /** Unix milliseconds. */
  ejectedUntil: number;
  /** Its ejection ran out, and one request is finding out whether it is back. */
  probedUntil: number;
  /** It asked to be left alone (429). */
  restsUntil: number;
}

export class Health {
  readonly #clock: Clock;
  readonly #troubles = new Map<string, Trouble>();
  /** Keys of what is asked under the newest configuration; null: not told. */
  #served: ReadonlySet<string> | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * These are served from now on. One that is gone, lies elsewhere or was drained will never succeed: its trouble is
   * forgotten, or it would be shown as taken out for ever.
   */
  serve(routes: readonly Route[]): void {
    const served = new Set<string>();
    for (const route of routes)
      for (const upstream of inTraffic(route.upstreams)) served.add(keyOf(route, upstream));
    this.#served = served;
    for (const key of this.#troubles.keys()) if (!served.has(key)) this.#forget(key);
  }

  /** Unix milliseconds until which it should not be asked; 0: none. */
  outUntil(route: Route, upstream: Upstream): number {
    if (this.#troubles.size === 0) return 0;
    const trouble = this.#troubles.get(keyOf(route, upstream));
    if (trouble === undefined) return 0;
    return Math.max(trouble.ejectedUntil, trouble.probedUntil, trouble.restsUntil);
  }

  /** Whether it was taken out and is not known to be back: its ejection lasts, or another request probes it. */
  isEjected(route: Route, upstream: Upstream): boolean {
    const trouble = this.#troubles.get(keyOf(route, upstream));
    return trouble !== undefined && Math.max(trouble.ejectedUntil, trouble.probedUntil) > this.#clock.now();
  }

  /**
   * It is being asked. After an ejection the first to ask is a probe: until it is known how that ends, the others
   * stay away, so that a dead upstream costs one request at a time.
   */
  asked(route: Route, upstream: Upstream): void {
    if (this.#troubles.size === 0) return;
    const trouble = this.#troubles.get(keyOf(route, upstream));
    if (trouble === undefined || trouble.ejections === 0) return;
    const now = this.#clock.now();
    if (Math.max(trouble.ejectedUntil, trouble.probedUntil) <= now) trouble.probedUntil = now + PROBE_MS;
  }

  /** Asking it told nothing about its health. */
  undecided(route: Route, upstream: Upstream): void {
    const trouble = this.#troubles.get(keyOf(route, upstream));
    if (trouble !== undefined) trouble.probedUntil = 0;
  }

  /** It answered: whatever it said, it is there. */
  answered(route: Route, upstream: Upstream): void {
    if (this.#troubles.size === 0) return;
    if (this.#troubles.delete(keyOf(route, upstream))) this.#show(route, upstream, 0);
  }

  /** Connect error, 5xx, first-byte time-out, or a key or credit that is at its end (401, 402). */
  failed(route: Route, upstream: Upstream): void {
    if (this.#isGone(route, upstream)) return;
    const trouble = this.#trouble(route, upstream);
    const now = this.#clock.now();
    trouble.failures += 1;
    trouble.probedUntil = 0;
    // Requests that were under way when it was taken out do not lengthen its ejection.
    if (trouble.failures < FAILURES_TO_EJECT || trouble.ejectedUntil > now) return;
    trouble.ejectedUntil = now + Math.min(EJECTION_MS.most, EJECTION_MS.first * 2 ** trouble.ejections);
    trouble.ejections += 1;
    this.#show(route, upstream, 1);
  }

  /** It asked to be left alone for a while: a 429 never ejects, but the time it names is skipped over. */
  rests(route: Route, upstream: Upstream, restMs: number): void {
    if (this.#isGone(route, upstream)) return;
    const trouble = this.#trouble(route, upstream);
    trouble.probedUntil = 0;
    trouble.restsUntil = this.#clock.now() + restMs;
  }

  /** The last calls to one that is served no more may end after it went. */
  #isGone(route: Route, upstream: Upstream): boolean {
    return this.#served?.has(keyOf(route, upstream)) === false;
  }

  #trouble(route: Route, upstream: Upstream): Trouble {
    const key = keyOf(route, upstream);
    const known = this.#troubles.get(key);
    if (known !== undefined) return known;
    if (this.#troubles.size >= MAX_TROUBLES) {
      const [oldest] = this.#troubles.keys();
      if (oldest !== undefined) this.#forget(oldest);
    }
    const trouble = {
      labels: { model: route.model, upstream: upstream.name },
      failures: 0,
      ejections: 0,
      ejectedUntil: 0,
      probedUntil: 0,
      restsUntil: 0,
    };
    this.#troubles.set(key, trouble);
    return trouble;
  }

  #forget(key: string): void {
    const trouble = this.#troubles.get(key);
    this.#troubles.delete(key);
    if (trouble !== undefined) metrics.upstreamEjected.remove(trouble.labels);
  }

  #show(route: Route, upstream: Upstream, value: 0 | 1): void {
    metrics.upstreamEjected.set({ model: route.model, upstream: upstream.name }, value);
  }
}

/** An upstream that is declared anew, or elsewhere, starts without a past. */
const keyOf = (route: Route, upstream: Upstream): string =>
  `${route.source.uid}\n${route.model}\n${upstream.name}\n${upstream.url}`;
