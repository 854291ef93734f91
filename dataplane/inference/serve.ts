/**
 * Serves one inference (design.md §4): looks at the request, refuses what no upstream may see, finds the route,
 * takes a hold, asks the route's upstreams, and passes the answer on in whatever way its path says.
 */
import type { Bill, MeteredRequest } from "../billing/meter.ts";
import { estimateMicros } from "../billing/price.ts";
import { noTokens, noTools } from "../billing/token-usage.ts";
import { tracedMeter } from "../billing/traced-meter.ts";
import { findRoute } from "../config/find-route.ts";
import type { Policy, Route, Upstream } from "../config/schema.ts";
import type { KeepItem, Sealer } from "../dialects/codecs.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { withoutForeignPaths } from "../dialects/upstream-error.ts";
import { ApiError } from "../lib/api-error.ts";
import { Deadline } from "../lib/deadline.ts";
import { inSpan, startSpan } from "../telemetry/trace.ts";
import type { RunTool } from "../tools/toolbox.ts";
import type { Upstreams } from "../upstream/ask.ts";
import { ClientLeft } from "../upstream/failure.ts";
import type { Answering, Outgoing, Question } from "../upstream/question.ts";
import type { InferenceCall } from "./call.ts";
import { choosePath, pathNeeds, type PathNeeds, type ServingPath } from "./choose-path.ts";
import { conversationKey } from "./conversation-key.ts";
import { Conversion, plainBody } from "./conversion.ts";
import { convertStream } from "./convert-stream.ts";
import { convertWhole } from "./convert-whole.ts";
import { relayBody } from "./edits.ts";
import { EndedOnce } from "./ended-once.ts";
import { askedOutput, estimateWork, possibleUsage, usualInputTokens } from "./estimate.ts";
import { keeperOf, refersToItems, withKnownItems } from "./item-references.ts";
import { look, type Look } from "./look.ts";
import { checkMedia, checkServerTools, refuse } from "./refuse.ts";
import { bodyWithoutReasoning, cannotSealReasoning, rejectsReasoning } from "./rejected-reasoning.ts";
import { rejectsSystemTurns } from "./rejected-system-turns.ts";
import type { RelayJob } from "./relay-job.ts";
import { relayStream } from "./relay-stream.ts";
import { serveWithTools, type ToolServices } from "./serve-tools.ts";
import { relayWhole } from "./relay-whole.ts";

/** What a Messages client without a version is taken to speak (spec, Versioning 2). */
const DEFAULT_VERSION = "2023-06-01";
/** As much of an unknown model's name is repeated to the client. */
const MAX_SHOWN_MODEL = 200;

export type Serve = (call: InferenceCall) => Promise<void>;

/**
 * @returns what `http` and `batches` call; see `InferenceCall` for its contract. One function from the first look to
 * the end: each further one that waits costs every request a microsecond.
 */
export const createServe =
  (upstreams: Upstreams, sealerOf: (organizationId: string) => Sealer, runTool: RunTool): Serve =>
  async (call) => {
    let seen = look(call.dialect, call.body);
    if (call.items !== undefined && refersToItems(seen)) seen = await withKnownItems(seen, call.items);
    const serving = accepted(call, seen, sealerOf(call.principal.organizationId));
    const policy = serving.toolPolicy();
    if (policy !== undefined) return serveWithTools(serving.toolServices(policy, upstreams, runTool));
    serving.checkReadable();
    const bill = new EndedOnce(await serving.open());
    const deadline = new Deadline(serving.route.timeouts.requestMs);
    try {
      await serving.iterate(upstreams, deadline, bill);
    } catch (error) {
      await serving.failed(error, upstreams, deadline, bill);
    } finally {
      deadline.dispose();
    }
  };

/** @throws ApiError for what no upstream may see, and for a model that the organization may not use. */
function accepted(call: InferenceCall, seen: Look, sealer: Sealer): Serving {
  refuse(seen);
  const route = routeOf(call, seen.model);
  call.record.model = route.model;
  call.record.streamed = seen.stream;
  checkServerTools(seen, route, call.snapshot.policy(route));
  return new Serving(call, seen, route, sealer);
}

/** @throws ApiError 404 for an unknown model, and for one that the organization may not use (rule 1.7). */
function routeOf({ snapshot, principal }: InferenceCall, model: string): Route {
  const route = findRoute(snapshot, principal.organizationId, model);
  if (route !== undefined) return route;
  throw new ApiError("model_not_found", `model: ${model.slice(0, MAX_SHOWN_MODEL)}`, { param: "model" });
}

/** One request being served. */
class Serving {
  readonly #call: InferenceCall;
  #look: Look;
  readonly route: Route;
  #needs: PathNeeds;
  readonly #strict: boolean;
  readonly #sealer: Sealer;
  readonly #keepItem: KeepItem | undefined;
  /** What the candidate that is being asked was sent. */
  #sent: Sent = { path: "relay", foreign: false, dropped: null, usageInjected: false, reasoningAsked: false };
  /** Whether a Responses upstream is asked for the content of its reasoning. */
  #encryptedReasoning = true;
  /** Read when the first candidate needs it. */
  #conversion: Conversion | null = null;

  constructor(call: InferenceCall, seen: Look, route: Route, sealer: Sealer) {
    this.#sealer = sealer;
    this.#call = call;
    this.#look = seen;
    this.route = route;
    this.#needs = pathNeeds(seen);
    this.#keepItem = keeperOf(call, seen);
    this.#strict = call.headers["x-gapura-strict"] === "true";
  }

  /** undefined: no server tool is asked for. */
  toolPolicy(): Policy | undefined {
    return this.#needs.serverTools ? this.#call.snapshot.policy(this.route) : undefined;
  }

  toolServices(policy: Policy, upstreams: Upstreams, runTool: RunTool): ToolServices {
    return {
      call: this.#call,
      look: this.#look,
      route: this.route,
      policy,
      sealer: this.#sealer,
      upstreams,
      runTool,
      conversation: this.#conversation(),
      open: async () => new EndedOnce(await this.open()),
      headers: ({ dialect }) => this.#headers(dialect),
    };
  }

  /** What no candidate can read is refused before anything is held for it. @throws ApiError */
  checkReadable(): void {
    checkMedia(this.#look, this.route);
    if (this.route.upstreams.every(({ dialect }) => choosePath(this.#needs, dialect) === "convert"))
      this.#read();
  }

  /** The only iteration of a request without server tools. */
  iterate(upstreams: Upstreams, deadline: Deadline, bill: EndedOnce): Promise<void> {
    const { record } = this.#call;
    const ask = () => upstreams.ask(this.#question(deadline), (answering) => this.#answer(answering, bill));
    if (record.span === null) return ask();
    const span = startSpan("iteration", record.span, () => ({
      "gen_ai.operation.name": "chat",
      "gen_ai.request.model": this.route.model,
      "gapura.iteration": 1,
    }));
    return inSpan(span, ask, () => ({
      ...(record.upstream === null ? {} : { "gapura.upstream": record.upstream }),
      "gapura.tries": record.tries,
      ...bill.usageAttributes,
    }));
  }

  /** Takes the hold of the first iteration. */
  open(): Promise<Bill> {
    const { id, acceptedAt, principal, dialect, batchId, meter, record } = this.#call;
    const { model, limits, prices } = this.route;
    const request: MeteredRequest = {
      id,
      acceptedAt,
      organizationId: principal.organizationId,
      projectId: principal.projectId ?? "",
      keyId: principal.keyId,
      keyEpoch: batchId === null ? principal.keyEpoch : null,
      model,
      contextTokens: limits.contextTokens,
      endpoint: batchId === null ? dialect : "batch",
      batchId,
      prices,
      inputTokens: usualInputTokens(this.#look),
    };
    const estimate = estimateMicros(prices, estimateWork(this.#look, this.route));
    return tracedMeter(meter, record.span).open(request, estimate);
  }

  #question(deadline: Deadline): Question {
    const { batchId, sink, record, snapshot } = this.#call;
    return {
      route: this.route,
      stream: this.#look.stream,
      batch: batchId !== null,
      conversation: this.#conversation(),
      deadline,
      closed: sink.closed,
      record,
      credential: (id) => snapshot.credential(id),
      write: (upstream) => this.#write(upstream),
    };
  }

  #conversation(): string | null {
    const { affinity, upstreams } = this.route;
    if (affinity === "none" || upstreams.length === 1) return null;
    const { principal, headers } = this.#call;
    return conversationKey(this.#look, principal.organizationId, headers["x-session-id"]);
  }

  #write(upstream: Upstream): Outgoing {
    const path = choosePath(this.#needs, upstream.dialect);
    const headers = this.#headers(upstream.dialect);
    this.#call.record.path = path;
    switch (path) {
      case "relay": {
        const { body, dropped, usageInjected, reasoningAsked } = relayBody(this.#look, this.route, upstream, {
          strict: this.#strict,
          encryptedReasoning: this.#encryptedReasoning && this.#keepItem !== undefined,
        });
        const names = dropped.length === 0 ? null : dropped.join(", ");
        this.#sent = { path, foreign: false, dropped: names, usageInjected, reasoningAsked };
        return { body, headers };
      }
      case "convert": {
        const conversion = this.#read();
        const { body, dropped } = conversion.write(upstream, conversion.request, this.#encryptedReasoning);
        const reasoningAsked = upstream.dialect === "responses" && this.#encryptedReasoning;
        const foreign = upstream.dialect !== this.#call.dialect;
        this.#sent = { path, foreign, dropped, usageInjected: false, reasoningAsked };
        return { body, headers };
      }
      case "tools":
        throw new Error("a request with server tools is served by its loop");
    }
  }

  #read(): Conversion {
    this.#conversion ??= new Conversion(
      this.#call,
      this.#look,
      this.route,
      this.#sealer,
      plainBody(this.#look, this.#sealer),
    );
    return this.#conversion;
  }

  /** Asks once more if that is worth it, or gives the hold back. @throws ApiError unless the client has left. */
  async failed(error: unknown, upstreams: Upstreams, deadline: Deadline, bill: EndedOnce): Promise<void> {
    let last = error;
    if (this.#mayBeAskedAgain(error)) {
      try {
        return await this.iterate(upstreams, deadline, bill);
      } catch (again) {
        last = again;
      }
    }
    if (last instanceof ClientLeft && last.sent) await this.#settlePrompt(bill);
    else await bill.release();
    // There is nobody left to tell.
    if (this.#call.sink.closed.aborted) return;
    throw last instanceof ApiError && this.#sent.foreign ? withoutForeignPaths(last) : last;
  }

  /** Of a call whose client left before its first byte (rule 1.11). */
  #settlePrompt(bill: Bill): Promise<void> {
    return bill.settle({
      tokens: { ...noTokens, input: usualInputTokens(this.#look) },
      tools: noTools,
      estimated: true,
      status: "cancelled",
      iterations: 1,
      upstream: this.#call.record.upstream,
    });
  }

  /** What an upstream refused can be put in another way, or left out: worth one more try. */
  #mayBeAskedAgain(error: unknown): boolean {
    if (this.#sent.path === "convert" && rejectsSystemTurns(error)) return this.#read().hoistSystemTurns();
    if (this.#sent.reasoningAsked && cannotSealReasoning(error)) {
      this.#encryptedReasoning = false;
      return true;
    }
    return rejectsReasoning(error) && this.#forgetReasoning();
  }

  /** The reasoning of earlier turns was made in another account: the request goes on without. */
  #forgetReasoning(): boolean {
    const body = bodyWithoutReasoning(this.#call.dialect, this.#look.body);
    if (body === null) return false;
    this.#look = look(this.#call.dialect, body);
    this.#needs = pathNeeds(this.#look);
    this.#conversion = null;
    return true;
  }

  /** Only these of the client's headers go upstream (design.md §4.1). */
  #headers(upstream: Dialect): Record<string, string> {
    if (upstream !== "messages") return {};
    const { "anthropic-version": version, "anthropic-beta": beta } = this.#call.headers;
    return {
      "anthropic-version": version ?? DEFAULT_VERSION,
      ...(beta === undefined ? {} : { "anthropic-beta": beta }),
    };
  }

  #answer(answering: Answering, bill: Bill): Promise<void> {
    const { dialect, id, log, sink, record } = this.#call;
    const { path, dropped, usageInjected } = this.#sent;
    const headers = dropped === null ? bill.headers : { ...bill.headers, "x-gapura-dropped": dropped };
    const failed = (error: ApiError) => {
      record.errorCode = error.code;
    };
    if (path === "convert") {
      const job = { bill, sink, headers, failed, conversion: this.#read() };
      return this.#look.stream ? convertStream(job, answering) : convertWhole(job, answering);
    }
    const job: RelayJob = {
      bill,
      sink,
      headers,
      failed,
      dialect,
      requestId: id,
      log,
      model: this.route.model,
      keepItem: this.#keepItem,
      usageInjected,
      choices: this.#look.choices,
      estimatedInput: usualInputTokens(this.#look),
      possible: possibleUsage(this.route, dialect, askedOutput(this.#look), this.#look.choices),
    };
    return this.#look.stream ? relayStream(job, answering) : relayWhole(job, answering);
  }
}

/** What a candidate was sent. */
interface Sent {
  readonly path: ServingPath;
  /** In another dialect than the client's. */
  readonly foreign: boolean;
  /** The value of `x-gapura-dropped`. */
  readonly dropped: string | null;
  /** Usage was asked for that the client did not ask for (relay). */
  readonly usageInjected: boolean;
  /** The content of reasoning was asked for that the client did not ask for. */
  readonly reasoningAsked: boolean;
}
