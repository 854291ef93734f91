/**
 * Serves one inference (design.md §4): looks at the request, refuses what no upstream may see, finds the route,
 * takes a hold, asks the route's upstreams, and passes the answer on in whatever way its path says.
 */
import type { Bill, MeteredRequest } from "../billing/meter.ts";
import { estimateMicros, pricesAt } from "../billing/prices/price.ts";
import { promptOf } from "../billing/token-usage.ts";
import { findRoute, isHidden, modelNotFound } from "../config/find-route.ts";
import type { Policy, Route, Upstream } from "../config/schema.ts";
import type { Sealer } from "../dialects/codecs.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { expectedTiers } from "../dialects/tiers.ts";
import { withToldPlaces } from "../dialects/told-places.ts";
import { countedUsage } from "../dialects/usage.ts";
import { ApiError } from "../lib/api-error.ts";
import { invalidKey } from "../lib/invalid-key.ts";
import { Deadline } from "../lib/deadline.ts";
import type { WorkerPool } from "../lib/worker-pool.ts";
import { BrokenAnswer } from "../loop/model-answer.ts";
import { beginModelCall, CANCELLED, type ModelTokens } from "../telemetry/model-call.ts";
import type { RequestSummary } from "../telemetry/request-summary.ts";
import { errorCode } from "../telemetry/trace.ts";
import { toolCapabilities } from "../tools/capabilities.ts";
import type { RunTool } from "../tools/toolbox.ts";
import { Attempts } from "../upstream/attempts.ts";
import { ClientLeft } from "../upstream/failure.ts";
import type { Upstreams } from "../upstream/upstreams.ts";
import type { UpstreamAnswer } from "../upstream/request.ts";
import { answerJob, settle, type RelayJob } from "./answer/answer-job.ts";
import { askAgain } from "./upstream-refusals/asking-again.ts";
import { costsPrompt } from "./answer/broken-answer.ts";
import type { InferenceCall } from "./call.ts";
import { conversationOf } from "./request/conversation-key.ts";
import { conversionFacts } from "./request/conversion.ts";
import { convertStream } from "./answer/convert-stream.ts";
import { convertWhole } from "./answer/convert-whole.ts";
import {
  askedOutput,
  estimateWork,
  expectedMedia,
  mayCompact,
  possibleUsage,
  raisedOutput,
  usualInputTokens,
} from "./estimate.ts";
import { knownItems, refersToItems } from "./request/item-references.ts";
import { checkPricedMedia, checkServerTools, checkTextOnly, refuse } from "./request/refuse.ts";
import { readTags } from "../lib/tags.ts";
import { OutgoingRequest, upstreamRequest } from "./request/outgoing-request.ts";
import { relayStream } from "./answer/relay-stream.ts";
import { AnswerSeal } from "./answer/seal-answer.ts";
import { serveWithTools, type ToolServices } from "./with-tools/serve-tools.ts";
import { relayWhole } from "./answer/relay-whole.ts";
import { TypicalOutput } from "./typical-output.ts";
import { servedWithout } from "./upstream-refusals/unknown-fields.ts";
import {
  edited,
  openBody,
  type BodyPlace,
  type RequestBody,
  type ServeOpened,
} from "./request/request-body.ts";
import type { AnyInspection } from "./inspect/body.ts";

/**
 * @returns the function that `http` and `batches` call; see `InferenceCall` for its contract. It is a single async function:
 * each further one that waits costs every request a microsecond.
 */
export function createServe(
  upstreams: Upstreams,
  sealerOf: (organizationId: string) => Sealer,
  runTool: RunTool,
  pool: WorkerPool | null = null,
): ServeOpened {
  const outputs = new TypicalOutput();
  return async (call) => {
    const { organizationId } = call.principal;
    const place = { pool, organizationId, closed: call.sink.closed };
    const opening = call.requestBody ?? openBody(call.dialect, call.body, place);
    let requestBody = opening instanceof Promise ? await opening : opening;
    // Before anything is refused, so that the record of the request has it.
    call.summary.askedModel = requestBody.inspected.model;
    if (call.items !== undefined && refersToItems(requestBody.inspected)) {
      const edits = await knownItems(requestBody.inspected, call.items, call.bodyLease);
      if (edits.length > 0) requestBody = await edited(requestBody, edits);
    }
    const current = mayBeOutdated(call, requestBody) ? await renewed(call) : call;
    const serving = accepted(current, requestBody, place, sealerOf(organizationId), outputs);
    const policy = serving.toolPolicy();
    if (policy !== undefined) {
      serving.learn(await serveWithTools(await serving.toolServices(policy, upstreams, runTool)));
      return;
    }
    const reading = serving.outgoing.checkReadable();
    if (reading instanceof Promise) await reading;
    const bill = await serving.open();
    call.summary.bill = bill;
    const deadline = new Deadline(serving.route.timeouts.requestMs, call.shutdown);
    try {
      await serving.iterate(upstreams, deadline, bill);
    } catch (error) {
      await serving.failed(error, upstreams, deadline, bill);
    } finally {
      deadline.dispose();
    }
    serving.learn(bill);
  };
}

/** Whether only limits of the caller that were remembered hide the model: they may have been changed since (rule 9.3). */
const mayBeOutdated = (
  call: InferenceCall,
  { inspected }: RequestBody,
): call is InferenceCall & Required<Pick<InferenceCall, "directory">> =>
  call.directory !== undefined && isHidden(call.snapshot, call.principal, inspected.model);

/** The call with its caller as the store has them now. @throws ApiError 401 */
async function renewed(
  call: InferenceCall & Required<Pick<InferenceCall, "directory">>,
): Promise<InferenceCall> {
  const principal = await call.directory.findAgain(call.principal);
  if (principal === null) throw invalidKey();
  return { ...call, principal };
}

/** Accepts a request. @throws ApiError for what no upstream may see, and for a model that the organization may not use. */
function accepted(
  call: InferenceCall,
  requestBody: RequestBody,
  place: BodyPlace,
  sealer: Sealer,
  outputs: TypicalOutput,
): Serving {
  const { inspected } = requestBody;
  call.summary.streamed = inspected.stream;
  // A batch has no stream to answer with (service.md "Batches").
  if (call.batchId !== null && inspected.stream)
    throw new ApiError("invalid_value", "stream: a request of a batch cannot be streamed.", {
      param: "stream",
    });
  call.summary.tags = tagsOf(call, inspected);
  refuse(inspected);
  const route = routeOf(call, inspected.model);
  call.summary.model = route.model;
  checkPricedMedia(inspected, pricesAt(route.prices, call.acceptedAt));
  checkServerTools(inspected, route, call.snapshot.policy(route));
  return new Serving(call, place, new OutgoingRequest(call, requestBody, route, sealer), outputs);
}

/** Returns the tags of the header, else of `metadata.tags`; null: none. @throws ApiError 400 naming where they stand (rule 14.4). */
function tagsOf({ headers }: InferenceCall, { tags }: AnyInspection): string | null {
  const header = headers["x-gapura-tags"];
  if (header !== undefined && header !== "") return readTags(header, "x-gapura-tags") || null;
  return tags === null ? null : readTags(tags, "metadata.tags") || null;
}

/** @throws ApiError 404 for an unknown model, and for one that the organization may not use (rule 1.7). */
function routeOf({ snapshot, principal }: InferenceCall, model: string): Route {
  const route = findRoute(snapshot, principal, model);
  if (route === undefined) throw modelNotFound(model);
  return route;
}

/** One request being served. */
class Serving {
  readonly #call: InferenceCall;
  readonly route: Route;
  readonly outgoing: OutgoingRequest;
  readonly #place: BodyPlace;
  readonly #outputs: TypicalOutput;

  constructor(call: InferenceCall, place: BodyPlace, outgoing: OutgoingRequest, outputs: TypicalOutput) {
    this.#call = call;
    this.#place = place;
    this.route = outgoing.route;
    this.outgoing = outgoing;
    this.#outputs = outputs;
  }

  get #seen(): AnyInspection {
    return this.outgoing.requestBody.inspected;
  }

  /** undefined: no server tool is asked for. */
  toolPolicy(): Policy | undefined {
    return this.outgoing.needs.serverTools ? this.#call.snapshot.policy(this.route) : undefined;
  }

  async toolServices(policy: Policy, upstreams: Upstreams, runTool: RunTool): Promise<ToolServices> {
    checkTextOnly(this.#seen);
    const { sealer } = this.outgoing;
    const facts = {
      ...conversionFacts(this.#call, this.#seen, this.route, this.outgoing.tiers),
      mayOpen: toolCapabilities(this.route, policy).web_fetch,
    };
    return {
      call: this.#call,
      place: this.#place,
      look: this.#seen,
      work: await this.outgoing.requestBody.openLoop(facts, sealer, this.outgoing.keepItem),
      route: this.route,
      policy,
      sealer,
      upstreams,
      runTool,
      conversation: this.#conversation(),
      open: () => this.open(),
      heldOutput: (limit) => this.heldOutput(limit),
      compacts: mayCompact(this.#seen, this.route),
      tiers: this.outgoing.tiers,
      headers: (upstream) => this.outgoing.headers(upstream),
    };
  }

  /** The only iteration of a request without server tools. */
  iterate(upstreams: Upstreams, deadline: Deadline, bill: Bill): Promise<void> {
    const { summary } = this.#call;
    const request = upstreamRequest(
      this.#call,
      this.route,
      this.#seen.stream,
      this.#conversation(),
      deadline,
    );
    const { model, upstreams: asked } = this.route;
    const call = beginModelCall(summary.span, {
      model,
      upstreams: asked,
      iteration: 1,
      stream: this.#seen.stream,
    });
    if (call === null) return this.#ask(new Attempts(upstreams, request), bill);
    const end = (error: string | null) =>
      call.end({
        tokens: chargedTokens(bill),
        attributes: {
          ...(summary.upstream === null ? {} : { "gapura.upstream": summary.upstream }),
          "gapura.tries": summary.tries,
        },
        error,
        last: summary.calls.at(-1),
      });
    return this.#ask(new Attempts(upstreams, { ...request, span: call.span }), bill).then(
      () => end(toldError(summary)),
      (error: unknown) => {
        end(error instanceof ClientLeft ? CANCELLED : errorCode(error));
        throw error;
      },
    );
  }

  /** Asks upstreams until an answer is passed on. Small requests are written without waiting, which would cost a microsecond. */
  async #ask(attempts: Attempts, bill: Bill): Promise<void> {
    for (;;) {
      const next = attempts.next();
      const upstream = next instanceof Promise ? await next : next;
      try {
        const outgoing = this.outgoing.write(upstream);
        const answer = await attempts.send(outgoing instanceof Promise ? await outgoing : outgoing);
        await this.#pass(answer, bill);
        servedWithout(this.outgoing.tiers, upstream);
        return attempts.taken();
      } catch (error) {
        attempts.failed(error);
      }
    }
  }

  /** Takes the hold of the first iteration. */
  open(): Promise<Bill> {
    const { id, acceptedAt, principal, dialect, batchId, meter, summary } = this.#call;
    const { model, limits } = this.route;
    const prices = pricesAt(this.route.prices, acceptedAt);
    const request: MeteredRequest = {
      id,
      acceptedAt,
      organizationId: principal.organizationId,
      projectId: principal.projectId ?? "",
      keyId: principal.keyId,
      keyEpoch: batchId === null ? principal.keyEpoch : null,
      limits: principal.limits,
      limitsEpoch: principal.keyEpoch,
      model,
      contextTokens: limits.contextTokens,
      endpoint: batchId === null ? dialect : "batch",
      batchId,
      tags: summary.tags ?? "",
      prices,
      inputTokens: usualInputTokens(this.#seen),
    };
    const most = estimateWork(this.#seen, this.route);
    const maxOutputTokens = this.heldOutput(most.maxOutputTokens);
    const work = { ...most, maxOutputTokens, tiers: this.outgoing.tiers.possible };
    const estimate = estimateMicros(prices, work);
    return meter.open(request, estimate, summary.span);
  }

  /** Returns the tokens held for an output limit (rule 9.7). */
  heldOutput(limit: number): number {
    const { snapshot, principal } = this.#call;
    const organization = snapshot.organization(principal.organizationId);
    return this.#outputs.held(organization, this.route, raisedOutput(limit, this.route));
  }

  /** Learns from an answer that is over. */
  learn({ settled }: Bill): void {
    this.#outputs.learn(this.route, settled, this.#seen.choices);
  }

  #conversation(): string | null {
    const { principal, headers } = this.#call;
    return conversationOf(this.route, this.#seen, principal.organizationId, headers["x-session-id"]);
  }

  /** Asks again if the refusal allows it; else settles or releases the hold. @throws ApiError unless the client has left. */
  async failed(error: unknown, upstreams: Upstreams, deadline: Deadline, bill: Bill): Promise<void> {
    let last: unknown;
    try {
      const ask = () => this.iterate(upstreams, deadline, bill);
      return await askAgain(error, ask, (refusal) => this.outgoing.leaveOut(refusal));
    } catch (again) {
      last = again;
    }
    const { upstream } = this.#call.summary;
    const told = last instanceof BrokenAnswer ? last.error : last;
    const job = { bill, model: this.route.model, sink: this.#call.sink };
    if (last instanceof BrokenAnswer) await settle(job, last.usage, last.upstream, "error");
    else if (costsPrompt(last, this.#call))
      await settle(
        job,
        countedUsage(null, this.#usageContext(this.outgoing.asked?.dialect ?? this.#call.dialect), () => ({
          tokens: 0,
        })),
        upstream,
        last instanceof ClientLeft ? "cancelled" : "error",
      );
    else await bill.release();
    // The client has left: nobody gets the error.
    if (this.#call.sink.closed.aborted) return;
    throw told instanceof ApiError ? withToldPlaces(told, this.outgoing.sent.places) : told;
  }

  /** Passes an answer on in whatever way its path says. @throws AttemptFailure while nothing of it has reached the client. */
  #pass(answer: UpstreamAnswer, bill: Bill): Promise<void> {
    const { dialect } = this.#call;
    const { path, places, dropped, usageInjected } = this.outgoing.sent;
    const job = answerJob(this.#call, this.#place, this.route.model, bill, dropped);
    const inspected = this.#seen;
    if (path === "convert") {
      const { conversion } = this.outgoing;
      if (conversion === null) throw new Error("an answer without its request");
      const convertJob = { ...job, conversion, places };
      return inspected.stream ? convertStream(convertJob, answer) : convertWhole(convertJob, answer);
    }
    // Field by field: there is one for each request, and V8 copies an object that is spread bit by bit.
    const relayJob: RelayJob = {
      dialect,
      requestId: job.requestId,
      organizationId: job.organizationId,
      model: job.model,
      bill,
      sink: job.sink,
      place: job.place,
      lease: job.lease,
      headers: job.headers,
      log: job.log,
      failed: job.failed,
      keepItem: this.outgoing.keepItem,
      seal: answerSeal(dialect, answer.upstream, this.outgoing.sealer),
      usageInjected,
      choices: inspected.choices,
      usage: this.#usageContext(dialect),
    };
    return inspected.stream ? relayStream(relayJob, answer) : relayWhole(relayJob, answer);
  }

  /** Returns what a call costs if its upstream, of this dialect, reports nothing, and the most that its report is believed. */
  #usageContext(upstream: Dialect): RelayJob["usage"] {
    const inspected = this.#seen;
    const tiers = expectedTiers(this.outgoing.tiers, this.#call.dialect, upstream);
    const media = expectedMedia(inspected);
    return {
      estimatedInputTokens: usualInputTokens(inspected),
      ...(media !== undefined && { media }),
      possible: possibleUsage(this.route, upstream, askedOutput(inspected), inspected.choices, tiers),
    };
  }
}

function chargedTokens({ settled }: Bill): ModelTokens | null {
  return settled === null ? null : { input: promptOf(settled.tokens), output: settled.tokens.output };
}

/** Returns the error of a call that threw nothing: one that breaks in its stream has told its client so by then. */
function toldError({ calls, errorCode: told }: RequestSummary): string | null {
  const fault = calls.at(-1)?.fault ?? null;
  if (fault === null) return null;
  return told ?? (fault === CANCELLED ? CANCELLED : "upstream_error");
}

/** Returns the seal for an answer; null: the account serves this organization alone, or nobody verifies reasoning (Chat). */
const answerSeal = (dialect: Dialect, { dedicatedTo }: Upstream, sealer: Sealer): AnswerSeal | null =>
  dedicatedTo !== null || dialect === "chat" ? null : new AnswerSeal(sealer, dialect);
