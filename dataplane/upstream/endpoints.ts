/** Where each upstream is, and what is counted of it: worked out once for each snapshot. */
import type { Route, Upstream } from "../config/schema.ts";
import { metrics } from "../telemetry/metrics.ts";
import type { Tally } from "../telemetry/tally.ts";

type UpstreamCredential = NonNullable<Upstream["credential"]>;

/** What every call says; what the route sets by itself wins. */
export const usualHeaders = (accept: string): Readonly<Record<string, string>> => ({
  "content-type": "application/json",
  "accept-encoding": "identity",
  "user-agent": "gapura",
  accept,
});

/** A credential as its header shows it. */
export const shownCredential = ({ header }: UpstreamCredential, value: string): string =>
  header.toLowerCase() === "authorization" ? `Bearer ${value}` : value;

/** An upstream's address and fixed headers, and its metrics: finding these by their labels costs more than counting. */
export class Endpoint {
  readonly origin: string;
  /** Path and query. */
  readonly path: string;
  /** Names and values in turn, for an answer that is streamed and for a whole one. */
  readonly streamHeaders: readonly string[];
  readonly wholeHeaders: readonly string[];
  /** Calls under way. */
  readonly active: Tally;
  readonly #labels: { readonly model: string; readonly upstream: string };
  readonly #requests = new Map<string, Tally>();

  constructor({ model }: Route, { name, url, headers }: Upstream) {
    const { origin, pathname, search } = new URL(url);
    const headersFor = (accept: string) => Object.entries({ ...usualHeaders(accept), ...headers }).flat();
    this.origin = origin;
    this.path = pathname + search;
    this.streamHeaders = headersFor("text/event-stream");
    this.wholeHeaders = headersFor("application/json");
    this.#labels = { model, upstream: name };
    this.active = metrics.upstreamActive.series(this.#labels);
    // There before its first event: to Prometheus, a counter that first appears as 1 has not increased.
    metrics.implausibleUsage.series(this.#labels);
  }

  /** Counts a call that ended so. */
  count(status: string): void {
    let counter = this.#requests.get(status);
    if (counter === undefined) {
      counter = metrics.upstreamRequests.series({ ...this.#labels, status });
      this.#requests.set(status, counter);
    }
    counter.value += 1;
  }
}

export class Endpoints {
  readonly #known = new WeakMap<Upstream, Endpoint>();

  of(route: Route, upstream: Upstream): Endpoint {
    let endpoint = this.#known.get(upstream);
    if (endpoint === undefined) {
      endpoint = new Endpoint(route, upstream);
      this.#known.set(upstream, endpoint);
    }
    return endpoint;
  }
}
