/** Asks a route's upstreams for the iterations of one tool loop; each may go to another upstream than the one before. */
import type { Upstream } from "../config/schema.ts";
import type { MessagesEvent } from "../dialects/messages/types.ts";
import { withoutForeignPaths } from "../dialects/upstream-error.ts";
import { ApiError } from "../lib/api-error.ts";
import { Deadline } from "../lib/deadline.ts";
import { SpoiledAnswer, type Exchange } from "../loop/exchange.ts";
import type { NextCall } from "../loop/next-request.ts";
import type { Answering, Question } from "../upstream/question.ts";
import { AttemptFailure, ClientLeft } from "../upstream/failure.ts";
import { streamedEvents, wholeEvents } from "./exchange.ts";
import type { LoopWritten } from "./open-loop.ts";
import { rejectsReasoning } from "./rejected-reasoning.ts";
import type { ToolServices } from "./serve-tools.ts";

export class Iterations {
  readonly #services: ToolServices;
  /** The value of `x-gapura-dropped` for the upstream that was asked last. */
  dropped: string | null = null;
  /** It speaks another dialect than the client. */
  #foreign = false;
  /** So many messages of the conversation are sent without their reasoning: an upstream refused it. */
  #withoutReasoning = 0;

  constructor(services: ToolServices) {
    this.#services = services;
  }

  /** One iteration's call. Resolves with the first events of whichever upstream answers. */
  ask(next: (target: Upstream["dialect"]) => NextCall): Promise<Exchange> {
    const { promise, resolve, reject } = Promise.withResolvers<Exchange>();
    const deadline = new Deadline(this.#services.route.timeouts.requestMs);
    let sent: LoopWritten | null = null;
    let limit: number | undefined;
    const question = this.#question(deadline, async (upstream) => {
      const call = next(upstream.dialect);
      limit = call.maxTokens;
      sent = await this.#services.work.write(upstream, call, this.#withoutReasoning);
      return sent;
    });
    const ask = () =>
      this.#services.upstreams.ask(question, (answering) => this.#take(answering, limit, resolve));
    ask()
      .catch((error: unknown) => {
        // Rule 2.17: reasoning that was made in another account is left out, once for each iteration.
        if (!rejectsReasoning(error) || sent?.reasoning !== true) throw error;
        this.#withoutReasoning = sent.turns;
        return ask();
      })
      .catch((error: unknown) => {
        const told = error instanceof AttemptFailure ? error.error : error;
        if (told instanceof ClientLeft && told.sent) reject(this.#leftBehind(told));
        else reject(told instanceof ApiError && this.#foreign ? withoutForeignPaths(told) : told);
      })
      .finally(() => deadline.dispose());
    return promise;
  }

  /** A call whose client left before its first byte costs its prompt (rule 1.11). */
  #leftBehind(error: ApiError): SpoiledAnswer {
    const { estimatedInputTokens = 0 } = this.#services.work.context;
    return new SpoiledAnswer(error, {
      upstream: this.#services.call.record.upstream ?? "",
      usage: { input_tokens: estimatedInputTokens, output_tokens: 0, estimated: true },
      corrupt: false,
    });
  }

  #question(deadline: Deadline, build: (upstream: Upstream) => Promise<LoopWritten>): Question {
    const { call, look, route, conversation, headers } = this.#services;
    return {
      route,
      stream: look.stream,
      batch: call.batchId !== null,
      conversation,
      deadline,
      closed: call.sink.closed,
      record: call.record,
      credential: (id) => call.snapshot.credential(id),
      write: async (upstream) => {
        call.record.path = "tools";
        const { body, dropped } = await build(upstream);
        this.dropped = dropped;
        this.#foreign = upstream.dialect !== call.dialect;
        return { body, headers: headers(upstream) };
      },
    };
  }

  /** Hands an answer over once its first events are there; stays until they have all been read. */
  async #take(
    answering: Answering,
    limit: number | undefined,
    resolve: (exchange: Exchange) => void,
  ): Promise<void> {
    const { upstream } = answering;
    const read = this.#services.look.stream ? streamedEvents : wholeEvents;
    const events = read(answering, this.#services.work.reading(upstream, limit));
    const first = await events.next();
    const { promise: finished, resolve: finish } = Promise.withResolvers<void>();
    async function* rest(): AsyncGenerator<readonly MessagesEvent[]> {
      try {
        if (first.done !== true) yield first.value;
        yield* events;
      } finally {
        finish();
      }
    }
    answering.accepted();
    resolve({ upstream: upstream.name, dialect: upstream.dialect, events: rest() });
    await finished;
  }
}
