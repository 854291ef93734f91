/** Asks a route's upstreams for the iterations of one tool loop; each may go to another upstream than the one before. */
import type { Span } from "@opentelemetry/api";
import type { Route, Upstream } from "../../config/schema.ts";
import type { CodecContext } from "../../dialects/codecs.ts";
import type { MessagesEvent } from "../../dialects/messages/types.ts";
import type { TierPlan } from "../../dialects/tiers.ts";
import { type ToldPlaces, withToldPlaces } from "../../dialects/told-places.ts";
import { Attempts } from "../../upstream/attempts.ts";
import { isGarbage } from "../../dialects/upstream-error.ts";
import { countedUsage } from "../../dialects/usage.ts";
import { ApiError } from "../../lib/api-error.ts";
import { Deadline } from "../../lib/deadline.ts";
import { BrokenAnswer, type ModelAnswer } from "../../loop/model-answer.ts";
import type { NextCall } from "../../loop/next-request.ts";
import type { Upstreams } from "../../upstream/upstreams.ts";
import { askAgain, refusedPart } from "../upstream-refusals/asking-again.ts";
import { isStrict, type InferenceCall } from "../call.ts";
import { costsPrompt } from "../answer/broken-answer.ts";
import { usualTokensOf } from "../estimate.ts";
import { answerEvents } from "./loop-answer.ts";
import type { Facts } from "../inspect/body.ts";
import { firstWishes, inputSizeOf, type LoopWork, type LoopWritten } from "./open-loop.ts";
import { upstreamRequest } from "../request/outgoing-request.ts";
import type { BodyPlace } from "../request/request-body.ts";
import { leaveOutBetas, refusedBetas, sentBetas } from "../upstream-refusals/refused-betas.ts";
import { refusedOwn, servedWithout, proofLost, tellWithout } from "../upstream-refusals/unknown-fields.ts";

export interface IterationServices {
  readonly call: InferenceCall;
  /** Where large answers are read. */
  readonly place: BodyPlace;
  readonly look: Facts;
  readonly work: LoopWork;
  readonly route: Route;
  readonly upstreams: Upstreams;
  /** The key that keeps a conversation on its upstream (design.md §4.6). */
  readonly conversation: string | null;
  readonly tiers: TierPlan;
  /** Returns the headers for an upstream, beside those of its route. */
  readonly headers: (upstream: Upstream) => Readonly<Record<string, string>>;
}

export class Iterations {
  readonly #services: IterationServices;
  /** The value of `x-gapura-dropped` for the upstream that was asked last. */
  dropped: string | null = null;
  /** Span of the current iteration. */
  #span: Span | null = null;
  /** The upstream that was asked last, and the request to it. */
  #asked: Upstream | null = null;
  #written: LoopWritten | null = null;
  /** Which places of that request an error may name to the client. */
  #places: ToldPlaces = "all";
  /** What that request adds to the client's. */
  #next: NextCall | null = null;
  /** Leave out what upstreams refused so far. */
  #wishes = firstWishes;

  constructor(services: IterationServices) {
    this.#services = services;
  }

  /** Makes one iteration's call. Resolves once the first events of an upstream's answer are there. */
  async ask(next: (target: Upstream["dialect"]) => NextCall, span: Span | null): Promise<ModelAnswer> {
    this.#span = span;
    const { call, route } = this.#services;
    const deadline = new Deadline(route.timeouts.requestMs, call.shutdown);
    try {
      return await this.#ask(deadline, next);
    } catch (error) {
      deadline.dispose();
      if (costsPrompt(error, call)) throw this.#unanswered(error);
      throw error instanceof ApiError ? withToldPlaces(error, this.#places) : error;
    }
  }

  /** @throws ApiError when a call can be written for no upstream of the route. */
  async judge(next: (target: Upstream["dialect"]) => NextCall): Promise<void> {
    const { route, work } = this.#services;
    let refusal: ApiError | null = null;
    for (const upstream of route.upstreams)
      try {
        await work.write(upstream, next(upstream.dialect), this.#wishes);
        return;
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        refusal ??= error;
      }
    if (refusal !== null) throw refusal;
  }

  async #ask(deadline: Deadline, next: (target: Upstream["dialect"]) => NextCall): Promise<ModelAnswer> {
    const ask = () => this.#try(deadline, next);
    try {
      return await ask();
    } catch (error) {
      return askAgain(error, ask, async (refusal) => this.#leaveOut(refusal));
    }
  }

  /** The same as `OutgoingRequest.leaveOut`. */
  #leaveOut(refusal: unknown): boolean {
    const { tiers, call } = this.#services;
    const [upstream, written] = [this.#asked, this.#written];
    if (upstream === null || written === null) return false;
    const { own, systemTurns, reasoning, turns } = written;
    const betas = sentBetas(tiers, upstream, isStrict(call));
    const reasoningAsked = upstream.dialect === "responses" && this.#wishes.encryptedReasoning;
    const part = refusedPart(refusal, { mayHoist: systemTurns, reasoningAsked, own, betas });
    if (part === "own fields") {
      tellWithout(tiers, upstream, refusedOwn(refusal, own));
      return true;
    }
    if (part === null || (part === "reasoning" && !reasoning)) return false;
    proofLost(tiers, upstream);
    if (part === "betas") leaveOutBetas(tiers, upstream, refusedBetas(refusal, betas) ?? []);
    else if (part === "system turns") this.#wishes = { ...this.#wishes, hoisted: true };
    else if (part === "reasoning") this.#wishes = { ...this.#wishes, forgotten: turns };
    else this.#wishes = { ...this.#wishes, encryptedReasoning: false };
    return true;
  }

  async #try(deadline: Deadline, next: (target: Upstream["dialect"]) => NextCall): Promise<ModelAnswer> {
    const { call, place, look, route, conversation, upstreams, work, headers } = this.#services;
    const request = upstreamRequest(call, route, look.stream, conversation, deadline);
    const attempts = new Attempts(
      upstreams,
      this.#span === null ? request : { ...request, span: this.#span },
    );
    for (;;) {
      const upstream = await attempts.next();
      try {
        call.summary.servingPath = "tools";
        const asked = next(upstream.dialect);
        this.#asked = upstream;
        this.#next = asked;
        this.#written = null;
        this.#written = await work.write(upstream, asked, this.#wishes);
        const { body, dropped, places } = this.#written;
        this.dropped = dropped;
        this.#places = places;
        const answer = await attempts.send({ body, headers: headers(upstream) });
        const reading = withAdded(work.reading(upstream, asked.maxTokens), asked);
        const { organizationId } = call.principal;
        const asking = { stream: look.stream, organizationId, later: asked.added.length > 0, places };
        const reader = { dialect: call.dialect, place, lease: call.bodyLease };
        const read = answerEvents(answer, reader, reading, asking);
        const first = await read.events.next();
        answer.accepted();
        servedWithout(this.#services.tiers, upstream);
        const over = () => {
          attempts.taken();
          deadline.dispose();
        };
        return {
          upstream: upstream.name,
          dialect: upstream.dialect,
          events: restOf(first, read.events, over),
          get usage() {
            return read.usage;
          },
        };
      } catch (error) {
        attempts.failed(error);
      }
    }
  }

  /** Makes the error of a call without any answer that costs its prompt nevertheless (`costsPrompt`). */
  #unanswered(error: ApiError): BrokenAnswer {
    const { call, work } = this.#services;
    const context =
      this.#asked === null || this.#next === null
        ? work.context
        : withAdded(work.reading(this.#asked), this.#next);
    return new BrokenAnswer(error, {
      upstream: call.summary.upstream ?? "",
      usage: countedUsage(null, context, () => ({ tokens: 0 })),
      corrupt: isGarbage(error),
    });
  }
}

/** Adds to the estimated prompt what the loop added to the conversation since the client's body (rule 10.6). */
const withAdded = (context: CodecContext, { added }: NextCall): CodecContext => ({
  ...context,
  estimatedInputTokens: (context.estimatedInputTokens ?? 0) + usualTokensOf(inputSizeOf(added)),
});

/** Yields an answer's events, the first of which were read already; calls `over` when the reading ends. */
async function* restOf(
  first: IteratorResult<readonly MessagesEvent[]>,
  events: AsyncGenerator<readonly MessagesEvent[]>,
  over: () => void,
): AsyncGenerator<readonly MessagesEvent[]> {
  try {
    if (first.done !== true) yield first.value;
    yield* events;
  } finally {
    over();
  }
}
