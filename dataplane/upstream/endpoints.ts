/** Addresses, fixed headers and metrics of upstreams, computed once for each snapshot. */
import type { Route, Upstream } from "../config/schema.ts";
import { metrics } from "../telemetry/metrics.ts";
import type { Tally } from "../telemetry/tally.ts";

type UpstreamCredential = NonNullable<Upstream["credential"]>;

/** Headers of every call; the route's own headers win. */
export const usualHeaders = (accept: string): Readonly<Record<string, string>> => ({
  "content-type": "application/json",
  "accept-encoding": "identity",
  "user-agent": "gapura",
  accept,
});

/** The value of a credential's header. */
export const shownCredential = ({ header }: UpstreamCredential, value: string): string =>
  header.toLowerCase() === "authorization" ? `Bearer ${value}` : value;

/** An upstream's address, fixed headers and metric series: looking the series up by their labels costs more than counting. */
export class Endpoint {
  readonly origin: string;
  /** Path and query. */
  readonly path: string;
  /** Alternating names and values, for a streamed and for a whole answer. */
  readonly streamHeaders: readonly string[];
  readonly wholeHeaders: readonly string[];
  /** Number of calls in progress. */
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
    // The series exists from the start: to Prometheus, a counter that first appears as 1 has not increased.
    metrics.implausibleUsage.series(this.#labels);
  }

  /** Counts a call by its final status. */
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
