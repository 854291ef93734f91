/**
 * Passive health checks (rule 1.14): an upstream that keeps failing is ejected for a while, longer each time, and one
 * success brings it back. Each process learns from its own traffic only.
 */
import type { Route, Upstream } from "../config/schema.ts";
import type { Clock } from "../lib/clock.ts";
import { SharedCache } from "../lib/shared-cache.ts";
import { metrics } from "../telemetry/metrics.ts";
import { inTraffic } from "./pick.ts";

/** Number of consecutive failures that eject an upstream. */
export const FAILURES_TO_EJECT = 5;
export const EJECTION_MS = { first: 10_000, most: 60_000 } as const;
/** Longest time that a probe of an upstream after its ejection keeps other requests away from it. */
const PROBE_MS = 10_000;
/**
 * Most unhealthy upstreams that are remembered; beyond it the namespace that has most of them loses its oldest. Healthy ones
 * have no entry.
 */
const MAX_TROUBLES = 10_000;

/** Two namespaces that do not trust each other may have routes with the same ones. */
interface Labels {
  readonly model: string;
  readonly upstream: string;
}

interface Trouble {
  readonly labels: Labels;
  failures: number;
  /** Number of ejections since its last answer. */
  ejections: number;
  /** By the clock, as all times here. */
  ejectedUntil: number;
  /** While one request probes the upstream after its ejection: when others may call it again. */
  probedUntil: number;
  /** When the time that it asked for with a 429 is over. */
  restsUntil: number;
}

export class Health {
  readonly #clock: Clock;
  /** Owned by namespaces: one that declares very many upstreams must not make those of others forgotten. */
  readonly #troubles = new SharedCache<Trouble>(MAX_TROUBLES, {
    evicted: (_, { labels }) => this.#hide(labels),
  });
  /** Keys of the upstreams in the newest configuration; null: no configuration yet. */
  #served: ReadonlySet<string> | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Notes the routes that are served from now on. An upstream that was removed, moved or drained gets no more requests and so
   * could never succeed: its entry is dropped, or it would be shown as ejected for ever.
   */
  serve(routes: readonly Route[]): void {
    const served = new Set<string>();
    for (const route of routes)
      for (const upstream of inTraffic(route.upstreams)) served.add(keyOf(route, upstream));
    this.#served = served;
    for (const key of this.#troubles.keys()) if (!served.has(key)) this.#forget(key);
  }

  /** Time of the clock until which the upstream should not be called; 0: it may be called now. */
  outUntil(route: Route, upstream: Upstream): number {
    if (this.#troubles.size === 0) return 0;
    const trouble = this.#troubles.peek(keyOf(route, upstream));
    if (trouble === undefined) return 0;
    return Math.max(trouble.ejectedUntil, trouble.probedUntil, trouble.restsUntil);
  }

  /** Whether it is ejected, or its ejection is over and another request is still probing it. */
  isEjected(route: Route, upstream: Upstream): boolean {
    const trouble = this.#troubles.peek(keyOf(route, upstream));
    return trouble !== undefined && Math.max(trouble.ejectedUntil, trouble.probedUntil) > this.#clock.now();
  }

  /**
   * Notes a call. The first call after an ejection is a probe: until its outcome is known other requests stay away, so that a
   * dead upstream costs one request at a time.
   */
  asked(route: Route, upstream: Upstream): void {
    if (this.#troubles.size === 0) return;
    const trouble = this.#troubles.peek(keyOf(route, upstream));
    if (trouble === undefined || trouble.ejections === 0) return;
    const now = this.#clock.now();
    if (Math.max(trouble.ejectedUntil, trouble.probedUntil) <= now) trouble.probedUntil = now + PROBE_MS;
  }

  /** Notes that a call ended without saying anything about the upstream's health. */
  undecided(route: Route, upstream: Upstream): void {
    const trouble = this.#troubles.peek(keyOf(route, upstream));
    if (trouble !== undefined) trouble.probedUntil = 0;
  }

  /** Notes that the upstream answered, with whatever status: it is up. */
  answered(route: Route, upstream: Upstream): void {
    if (this.#troubles.size === 0) return;
    const key = keyOf(route, upstream);
    const trouble = this.#troubles.peek(key);
    if (trouble === undefined) return;
    this.#troubles.delete(key);
    this.#show(trouble.labels);
  }

  /** Notes a failure: connect error, 5xx, first-byte time-out, or an invalid key or used-up credit (401, 402). */
  failed(route: Route, upstream: Upstream): void {
    if (this.#isGone(route, upstream)) return;
    const trouble = this.#trouble(route, upstream);
    const now = this.#clock.now();
    trouble.failures += 1;
    trouble.probedUntil = 0;
    // Requests that were in progress when it was ejected do not lengthen its ejection.
    if (trouble.failures < FAILURES_TO_EJECT || trouble.ejectedUntil > now) return;
    trouble.ejectedUntil = now + Math.min(EJECTION_MS.most, EJECTION_MS.first * 2 ** trouble.ejections);
    trouble.ejections += 1;
    this.#show(trouble.labels);
  }

  /** Notes a 429: it never ejects, but the upstream is not called for the time that it asked for. */
  rests(route: Route, upstream: Upstream, restMs: number): void {
    if (this.#isGone(route, upstream)) return;
    const trouble = this.#trouble(route, upstream);
    trouble.probedUntil = 0;
    trouble.restsUntil = this.#clock.now() + restMs;
  }

  /** Whether the upstream has left the configuration; its last calls may end after that. */
  #isGone(route: Route, upstream: Upstream): boolean {
    return this.#served?.has(keyOf(route, upstream)) === false;
  }

  #trouble(route: Route, upstream: Upstream): Trouble {
    const key = keyOf(route, upstream);
    const known = this.#troubles.peek(key);
    if (known !== undefined) return known;
    const trouble = {
      labels: { model: route.model, upstream: upstream.name },
      failures: 0,
      ejections: 0,
      ejectedUntil: 0,
      probedUntil: 0,
      restsUntil: 0,
    };
    this.#troubles.set(route.source.namespace, key, trouble);
    return trouble;
  }

  #forget(key: string): void {
    const trouble = this.#troubles.peek(key);
    this.#troubles.delete(key);
    if (trouble !== undefined) this.#hide(trouble.labels);
  }

  /** Shows no more what was forgotten. */
  #hide(labels: Labels): void {
    if (!this.#isOut(labels)) metrics.upstreamEjected.remove({ ...labels });
  }

  #show(labels: Labels): void {
    metrics.upstreamEjected.set({ ...labels }, this.#isOut(labels) ? 1 : 0);
  }

  /** Whether any upstream that is shown under these labels was taken out. */
  #isOut({ model, upstream }: Labels): boolean {
    for (const { labels, ejections } of this.#troubles.values())
      if (ejections > 0 && labels.model === model && labels.upstream === upstream) return true;
    return false;
  }
}

/** Key of an upstream. An upstream of a re-created route, or with another URL, starts without a history. */
const keyOf = (route: Route, upstream: Upstream): string =>
  `${route.source.uid}\n${route.model}\n${upstream.name}\n${upstream.url}`;
