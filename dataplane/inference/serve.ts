/**
 * Serves one inference (design.md §4): looks at the request, refuses what no upstream may see, finds the route,
 * takes a hold, asks the route's upstreams, and passes the answer on in whatever way its path says.
 */
import type { Bill, Meter, MeteredRequest } from "../billing/meter.ts";
import { estimateMicros } from "../billing/price.ts";
import { findRoute } from "../config/find-route.ts";
import type { Route, Upstream } from "../config/schema.ts";
import { ApiError } from "../lib/api-error.ts";
import { Deadline } from "../lib/deadline.ts";
import type { Answering, Outgoing, Question, Upstreams } from "../upstream/ask.ts";
import type { InferenceCall } from "./call.ts";
import { choosePath, pathNeeds, type PathNeeds } from "./choose-path.ts";
import { relayBody, type RelayBody } from "./edits.ts";
import { estimateWork, usualInputTokens } from "./estimate.ts";
import { look, type Look } from "./look.ts";
import { checkServerTools, refuse } from "./refuse.ts";
import { relayStream, relayWhole, type RelayJob } from "./relay.ts";

/** What a Messages client without a version is taken to speak (spec, Versioning 2). */
const DEFAULT_VERSION = "2023-06-01";
/** As much of an unknown model's name is repeated to the client. */
const MAX_SHOWN_MODEL = 200;

export type Serve = (call: InferenceCall) => Promise<void>;

/** @returns what `http` and `batches` call; see `InferenceCall` for its contract. */
export const createServe =
  (upstreams: Upstreams): Serve =>
  async (call) => {
    const seen = look(call.dialect, call.body);
    refuse(seen);
    const route = routeOf(call, seen.model);
    call.record.model = route.model;
    call.record.streamed = seen.stream;
    checkServerTools(seen, route, call.snapshot.policy(route));
    await new Serving(call, seen, route).run(upstreams);
  };

/** @throws ApiError 404 for an unknown model, and for one that the organization may not use (rule 1.7). */
function routeOf({ snapshot, principal }: InferenceCall, model: string): Route {
  const route = findRoute(snapshot, principal.organizationId, model);
  if (route !== undefined) return route;
  throw new ApiError("model_not_found", `model: ${model.slice(0, MAX_SHOWN_MODEL)}`, { param: "model" });
}

/** One request being served. */
class Serving {
  readonly #call: InferenceCall;
  readonly #look: Look;
  readonly #route: Route;
  readonly #needs: PathNeeds;
  readonly #strict: boolean;
  /** What the candidate that is being asked was sent. */
  #sent: RelayBody | null = null;

  constructor(call: InferenceCall, seen: Look, route: Route) {
    this.#call = call;
    this.#look = seen;
    this.#route = route;
    this.#needs = pathNeeds(seen);
    this.#strict = call.headers["x-gapura-strict"] === "true";
  }

  async run(upstreams: Upstreams): Promise<void> {
    const bill = await this.#open(this.#call.meter);
    const deadline = new Deadline(this.#route.timeouts.requestMs);
    try {
      await upstreams.ask(this.#question(deadline), (answering) => this.#answer(answering, bill));
    } catch (error) {
      await bill.release();
      // There is nobody left to tell.
      if (this.#call.sink.closed.aborted) return;
      throw error;
    } finally {
      deadline.dispose();
    }
  }

  async #open(meter: Meter): Promise<EndedOnce> {
    const { id, acceptedAt, principal, dialect, batchId } = this.#call;
    const route = this.#route;
    const work = estimateWork(this.#look, route);
    const request: MeteredRequest = {
      id,
      acceptedAt,
      organizationId: principal.organizationId,
      projectId: principal.projectId ?? "",
      keyId: principal.keyId,
      keyEpoch: batchId === null ? principal.keyEpoch : null,
      model: route.model,
      contextTokens: route.limits.contextTokens,
      endpoint: batchId === null ? dialect : "batch",
      batchId,
      prices: route.prices,
      inputTokens: usualInputTokens(this.#look),
    };
    return new EndedOnce(await meter.open(request, estimateMicros(route.prices, work)));
  }

  #question(deadline: Deadline): Question {
    const { batchId, sink, record, snapshot } = this.#call;
    return {
      route: this.#route,
      stream: this.#look.stream,
      batch: batchId !== null,
      deadline,
      signal: sink.closed,
      record,
      credential: (id) => snapshot.credential(id),
      write: (upstream) => this.#write(upstream),
    };
  }

  #write(upstream: Upstream): Outgoing {
    const path = choosePath(this.#needs, upstream.dialect);
    this.#call.record.path = path;
    if (path !== "relay")
      throw new ApiError(
        "invalid_request",
        "This request needs its model's upstream to speak another dialect, which is not available yet.",
      );
    this.#sent = relayBody(this.#look, this.#route, upstream, this.#strict);
    return { body: this.#sent.body, headers: this.#headers() };
  }

  /** Only these of the client's headers go upstream (design.md §4.1). */
  #headers(): Record<string, string> {
    if (this.#call.dialect !== "messages") return {};
    const { "anthropic-version": version, "anthropic-beta": beta } = this.#call.headers;
    return {
      "anthropic-version": version ?? DEFAULT_VERSION,
      ...(beta === undefined ? {} : { "anthropic-beta": beta }),
    };
  }

  #answer(answering: Answering, bill: Bill): Promise<void> {
    const { dialect, id, sink, record } = this.#call;
    const dropped = this.#sent?.dropped ?? [];
    const job: RelayJob = {
      dialect,
      requestId: id,
      model: this.#route.model,
      usageInjected: this.#sent?.usageInjected ?? false,
      choices: this.#look.choices,
      estimatedInput: usualInputTokens(this.#look),
      bill,
      sink,
      headers: {
        ...bill.headers,
        ...(dropped.length === 0 ? {} : { "x-gapura-dropped": dropped.join(", ") }),
      },
      failed: (error) => {
        record.errorCode = error.code;
      },
    };
    return this.#look.stream ? relayStream(job, answering) : relayWhole(job, answering);
  }
}

/** A bill that is settled or released once, whoever comes first. */
class EndedOnce implements Bill {
  readonly #bill: Bill;
  #ended = false;

  constructor(bill: Bill) {
    this.#bill = bill;
  }

  get headers(): Bill["headers"] {
    return this.#bill.headers;
  }

  observe(...args: Parameters<Bill["observe"]>): void {
    this.#bill.observe(...args);
  }

  advance(...args: Parameters<Bill["advance"]>): Promise<boolean> {
    return this.#bill.advance(...args);
  }

  settle(...args: Parameters<Bill["settle"]>): Promise<void> {
    this.#ended = true;
    return this.#bill.settle(...args);
  }

  async release(): Promise<void> {
    if (this.#ended) return;
    this.#ended = true;
    await this.#bill.release();
  }
}
