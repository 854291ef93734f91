/** All upstreams of this process: connections to them, and what is known of their health. */
import type { Dispatcher } from "undici";
import type { Route, Upstream } from "../config/schema.ts";
import { steadyClock, type Clock } from "../lib/clock.ts";
import { Endpoints } from "./endpoints.ts";
import { Health } from "./health.ts";
import { preference } from "./pick.ts";

export interface UpstreamsOptions {
  /** For how long an upstream is out and a request may try: a step of the machine's clock must not change that (rule 12.8). */
  readonly clock?: Clock;
  /** A number in [0, 1): spreads unbound requests, and jitters waiting times. */
  readonly random?: () => number;
  /** Opens a new connection for each request; for a try after one on a stale connection. */
  readonly fresh?: Dispatcher;
}

export class Upstreams {
  readonly dispatcher: Dispatcher;
  readonly fresh: Dispatcher;
  readonly clock: Clock;
  readonly random: () => number;
  readonly health: Health;
  readonly endpoints = new Endpoints();

  constructor(
    dispatcher: Dispatcher,
    { clock = steadyClock, random = Math.random, fresh = dispatcher }: UpstreamsOptions = {},
  ) {
    this.dispatcher = dispatcher;
    this.fresh = fresh;
    this.clock = clock;
    this.random = random;
    this.health = new Health(clock);
  }

  /** Who counts a request's tokens for this route; undefined: nobody does, or all who do are out. */
  counting(route: Route, conversation: string | null): Upstream | undefined {
    const now = this.clock.now();
    return this.preferred(route, conversation).find(
      (upstream) => upstream.countTokensUrl !== null && this.health.outUntil(route, upstream) <= now,
    );
  }

  /** The upstreams of a route in the order in which a request is to be sent to them. */
  preferred({ upstreams }: Route, conversation: string | null): readonly Upstream[] {
    return preference(upstreams, () => conversation ?? String(this.random()));
  }
}
