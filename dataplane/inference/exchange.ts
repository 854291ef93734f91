/**
 * An upstream's answer as hub events that are pulled, for the tool loop: while it runs a tool or its client is
 * behind, nothing more is read. (Plain conversions push; they have no reason to wait.)
 */
import type { CodecContext, SseEvent, StreamReader } from "../dialects/codecs.ts";
import type { MessagesEvent, MessagesResponse, MessagesUsage } from "../dialects/messages/types.ts";
import { codecs } from "../dialects/registry.ts";
import { corruptAnswer } from "../dialects/upstream-error.ts";
import { ApiError } from "../lib/api-error.ts";
import { SseReader } from "../lib/sse.ts";
import { wholeBlock } from "../loop/round.ts";
import { SpoiledAnswer } from "../loop/exchange.ts";
import type { UpstreamAnswer } from "../upstream/request.ts";
import { failureOfErrorBody } from "../upstream/failure.ts";
import { MAX_ANSWER_BYTES } from "../upstream/limits.ts";
import { CallError, type CallFault } from "../upstream/send.ts";
import { CHARACTERS_PER_TOKEN } from "./convert-job.ts";
import { brokenStream, faultOfEnd, isOwed, unbegunAnswer } from "./stream-answer.ts";
import { failedUsage, isErrorBody, parsedAnswer } from "./whole-answer.ts";

/** Batches of events that wait for their reader before the upstream is told to pause. */
const MAX_WAITING = 16;

/**
 * The hub events of a whole answer.
 * @throws AttemptFailure when it is an error, SpoiledAnswer when it is corrupt, ApiError when it is empty.
 */
export async function* wholeEvents(
  answering: UpstreamAnswer,
  context: CodecContext,
): AsyncGenerator<readonly MessagesEvent[]> {
  let body: Buffer;
  try {
    body = await answering.call.whole(MAX_ANSWER_BYTES);
  } catch (error) {
    if (!(error instanceof CallError)) throw error;
    const { fault, received } = error;
    if (!isOwed(answering.call, fault)) throw unbegunAnswer(brokenStream(fault), fault);
    throw spoiled(brokenStream(fault), { answering, context, received, corrupt: fault === "too_large" });
  }
  const received = body.length;
  const parsed = parsedAnswer(answering.upstream.dialect, body);
  if (parsed === null && received === 0) throw corruptAnswer("garbage");
  if (parsed === null)
    throw spoiled(corruptAnswer("garbage"), { answering, context, received, corrupt: true });
  if (isErrorBody(parsed)) throw failureOfErrorBody(body);
  try {
    yield eventsOf(codecs[answering.upstream.dialect].readResponse(parsed, context));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    throw spoiled(error, {
      answering,
      context,
      received,
      corrupt: true,
      usage: failedUsage(parsed, context.possible),
    });
  }
}

interface Received {
  readonly answering: UpstreamAnswer;
  readonly context: CodecContext;
  /** Bytes. */
  readonly received: number;
  readonly corrupt: boolean;
  /** As the upstream reports it. */
  readonly usage?: MessagesUsage | null;
}

/** Rule 1.6: a spoiled answer costs what was sent and received, as far as that can be told. */
const spoiled = (error: ApiError, { answering, context, received, corrupt, usage = null }: Received) =>
  new SpoiledAnswer(error, {
    upstream: answering.upstream.name,
    corrupt,
    usage: usage ?? {
      input_tokens: context.estimatedInputTokens ?? 0,
      output_tokens: Math.ceil(received / CHARACTERS_PER_TOKEN),
      estimated: true,
    },
  });

/**
 * The hub events of a stream.
 * @throws AttemptFailure before the first event; afterwards an ApiError, or SpoiledAnswer when what the answer used is
 *   reported.
 */
export async function* streamedEvents(
  answering: UpstreamAnswer,
  context: CodecContext,
): AsyncGenerator<readonly MessagesEvent[]> {
  const { call, upstream } = answering;
  const queue = new EventQueue(answering, context, codecs[upstream.dialect].readStream(context));
  try {
    for (;;) {
      const events = await queue.next();
      if (events === null) return;
      yield events;
      if (events.some(({ type }) => type === "message_stop")) return;
    }
  } finally {
    // Whoever stops reading early leaves an answer that nobody wants.
    if (!queue.finished) call.abort("cut");
  }
}

class EventQueue {
  readonly #answering: UpstreamAnswer;
  readonly #context: CodecContext;
  readonly #reader: StreamReader;
  readonly #sse = new SseReader();
  readonly #waiting: (readonly MessagesEvent[])[] = [];
  #failure: unknown = null;
  #over = false;
  #seen = false;
  #wake: () => void = () => undefined;

  constructor(answering: UpstreamAnswer, context: CodecContext, reader: StreamReader) {
    this.#answering = answering;
    this.#context = context;
    this.#reader = reader;
    answering.call.read({
      data: (chunk) => this.#read(() => this.#sse.push(chunk)),
      end: () => {
        this.#read(() => this.#sse.end());
        this.#close(() => this.#reader.end({ kind: "eof" }), faultOfEnd(this.#seen, answering.call));
      },
      fail: (fault) =>
        this.#close(() => this.#reader.end({ kind: "failed", error: brokenStream(fault) }), fault),
    });
  }

  get finished(): boolean {
    return this.#over;
  }

  /** The next events; null at the end. */
  async next(): Promise<readonly MessagesEvent[] | null> {
    for (;;) {
      const events = this.#waiting.shift();
      if (events !== undefined) {
        if (this.#waiting.length === 0 && !this.#over) this.#answering.call.resume();
        return events;
      }
      if (this.#failure !== null) throw this.#failure;
      if (this.#over) return null;
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      await promise;
    }
  }

  #read(frames: () => readonly SseEvent[]): void {
    if (this.#over) return;
    const events: MessagesEvent[] = [];
    let failing: SseEvent | null = null;
    try {
      for (const frame of frames()) {
        failing = frame;
        events.push(...this.#reader.step(frame));
      }
      this.#push(events);
    } catch (error) {
      this.#push(events);
      this.#fail(error instanceof ApiError ? error : corruptAnswer("too_large"), "garbage", failing);
      this.#answering.call.abort("cut");
    }
  }

  /** The upstream has nothing more to say; its reader knows whether that was its end. */
  #close(last: () => MessagesEvent[], fault: CallFault): void {
    if (this.#over) return;
    try {
      this.#push(last());
      this.#over = true;
      this.#wake();
    } catch (error) {
      this.#fail(error instanceof ApiError ? error : brokenStream(fault), fault, null);
    }
  }

  #push(events: readonly MessagesEvent[]): void {
    if (events.length === 0) return;
    this.#seen = true;
    this.#waiting.push(events);
    if (this.#waiting.length >= MAX_WAITING) this.#answering.call.pause();
    this.#wake();
  }

  /** A report stands, whatever became of the answer. */
  #charged(error: ApiError): ApiError | SpoiledAnswer {
    const usage = this.#reader.reported;
    if (usage === null) return error;
    return new SpoiledAnswer(error, { upstream: this.#answering.upstream.name, usage, corrupt: true });
  }

  #fail(error: ApiError, fault: CallFault, event: SseEvent | null): void {
    const told = event !== null && (event.event === "error" || /"error"\s*:\s*[{"]/.test(event.data));
    if (this.#seen) this.#failure = this.#charged(error);
    else if (told) this.#failure = failureOfErrorBody(Buffer.from(event.data));
    else if (fault === "cancelled" && isOwed(this.#answering.call, fault))
      this.#failure = spoiled(error, {
        answering: this.#answering,
        context: this.#context,
        received: 0,
        corrupt: false,
      });
    else this.#failure = unbegunAnswer(error, fault);
    this.#over = true;
    this.#wake();
  }
}

/** A whole answer as the stream that says the same. */
function eventsOf(message: MessagesResponse): MessagesEvent[] {
  const { content, stop_reason, stop_sequence, stop_details, usage, ...start } = message;
  return [
    {
      type: "message_start",
      message: { ...start, content: [], stop_reason: null, stop_sequence: null, usage },
    },
    ...content.flatMap((block, index): MessagesEvent[] => {
      const delta = (of: Extract<MessagesEvent, { type: "content_block_delta" }>["delta"]) =>
        ({ type: "content_block_delta", index, delta: of }) as const;
      const stop = { type: "content_block_stop", index } as const;
      if (block.type === "text") {
        return [
          { type: "content_block_start", index, content_block: { type: "text", text: "" } },
          delta({ type: "text_delta", text: block.text }),
          ...(block.citations ?? []).map((citation) => delta({ type: "citations_delta", citation })),
          stop,
        ];
      }
      if (block.type === "thinking") {
        return [
          {
            type: "content_block_start",
            index,
            content_block: { type: "thinking", thinking: "", signature: "" },
          },
          delta({ type: "thinking_delta", thinking: block.thinking }),
          delta({ type: "signature_delta", signature: block.signature }),
          stop,
        ];
      }
      return wholeBlock(block, index);
    }),
    {
      type: "message_delta",
      delta: { stop_reason, stop_sequence, ...(stop_details === undefined ? {} : { stop_details }) },
      usage,
    },
    { type: "message_stop" },
  ];
}
