/** All upstreams of this process: connections to them, and what is known of their health. */
import type { Dispatcher } from "undici";
import { systemClock, type Clock } from "../lib/clock.ts";
import { Attempts } from "./attempts.ts";
import { Endpoints } from "./endpoints.ts";
import { Health } from "./health.ts";
import { preference } from "./pick.ts";
import type { UpstreamRequest } from "./request.ts";

export interface UpstreamsOptions {
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
    { clock = systemClock, random = Math.random, fresh = dispatcher }: UpstreamsOptions = {},
  ) {
    this.dispatcher = dispatcher;
    this.fresh = fresh;
    this.clock = clock;
    this.random = random;
    this.health = new Health(clock);
  }

  /** The tries of one request. */
  attempts(request: UpstreamRequest): Attempts {
    const { route, conversation } = request;
    return new Attempts(
      this,
      request,
      preference(route.upstreams, () => conversation ?? String(this.random())),
    );
  }
}
