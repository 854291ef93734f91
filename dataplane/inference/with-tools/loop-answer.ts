/**
 * An upstream's answer as Messages events that the tool loop pulls: while the loop runs a tool, or its client is behind,
 * nothing more is read.
 */
import type { CodecContext } from "../../dialects/codecs.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import type { MessagesEvent, MessagesUsage } from "../../dialects/messages/types.ts";
import { type ToldPlaces, withToldPlaces } from "../../dialects/told-places.ts";
import type { ApiError } from "../../lib/api-error.ts";
import { GatheredPieces } from "../../lib/small-pieces.ts";
import { BrokenAnswer, type ModelAnswer } from "../../loop/model-answer.ts";
import { AttemptFailure } from "../../upstream/failure.ts";
import { MOST_BEGUN_BYTES } from "../../upstream/limits.ts";
import type { UpstreamAnswer } from "../../upstream/request.ts";
import type { CallFault, UpstreamCall } from "../../upstream/send.ts";
import { EventTranslator } from "../answer/event-translator.ts";
import { ResponseStream, type StreamConsumer } from "../answer/response-stream.ts";
import { readWhole, type WholeReader } from "../answer/read-whole.ts";
import { streamTurns } from "../answer/stream-turns.ts";
import { countUntil } from "../answer/waiting-bytes.ts";
import { usageOfBytes, usageOfNoStream } from "../answer/whole-answer.ts";
import type { BodyLease } from "../call.ts";
import { LargeAnswer } from "../large/large-answer.ts";
import type { BodyPlace } from "../request/request-body.ts";
import { CONVERT_HERE_BYTES } from "../large/large-body.ts";
import { LeanEvents } from "../large/large-event.ts";
import { remoteContext } from "../large/remote-reading.ts";
import { wholeEvents } from "./whole-events.ts";

/** Batches of events that may wait for their reader before the upstream is paused. */
const MAX_WAITING = 16;
/** Bytes of an answer whose events may wait before the upstream is paused; the last event may be longer. */
const MAX_WAITING_BYTES = 256 * 1024;

export type AnswerEvents = Pick<ModelAnswer, "usage"> & {
  readonly events: AsyncGenerator<readonly MessagesEvent[]>;
};

/** How an iteration was asked for. */
interface Asking {
  readonly stream: boolean;
  readonly organizationId: string;
  /** Whether the loop has added results of tools to what the client sent. */
  readonly later: boolean;
  /** Which places of the request an error may name to the client. */
  readonly places: ToldPlaces;
}

/**
 * Reads an upstream's answer as events.
 * @param reader for whom it is read.
 * @param context what this upstream's answer is read with.
 */
export function answerEvents(
  answer: UpstreamAnswer,
  reader: Omit<WholeReader, "usage">,
  context: CodecContext,
  asking: Asking,
): AnswerEvents {
  return asking.stream
    ? streamedEvents(answer, reader, context, asking)
    : readEvents(answer, { ...reader, usage: context }, context);
}

/** Reads a whole answer. Its events @throws AttemptFailure when it is an error, BrokenAnswer when it costs nevertheless. */
function readEvents(answer: UpstreamAnswer, reader: WholeReader, context: CodecContext): AnswerEvents {
  const { dialect } = answer.upstream;
  const read = { usage: { input_tokens: 0, output_tokens: 0 } as MessagesUsage };
  async function* events() {
    const whole = await readWhole(answer, reader, {
      hereBytes: CONVERT_HERE_BYTES,
      here: (body) => wholeEvents(dialect, body, context),
      elsewhere: (large) => large.events({ dialect, context: remoteContext(context) }),
    });
    read.usage = whole.usage;
    yield whole.events;
  }
  return Object.assign(read, { events: events() });
}

/** Reads a stream. Its events @throws AttemptFailure before the first one; afterwards, and if the stream costs, BrokenAnswer. */
function streamedEvents(
  answer: UpstreamAnswer,
  { dialect: client, place, lease }: Omit<WholeReader, "usage">,
  context: CodecContext,
  { later, places, organizationId }: Asking,
): AnswerEvents {
  const { upstream, call } = answer;
  const lean = new LeanEvents(place, lease, { dialect: upstream.dialect, isRelayed: false });
  const queue = new EventQueue(client, upstream.name, places, { call, lease });
  const stream = new IterationStream(
    answer,
    queue,
    streamTurns.owner(organizationId),
    lease,
    (around) =>
      new EventTranslator(around, upstream.dialect, context, lean, {
        writer: null,
        say: (events) => {
          if (events.some(({ type }) => type === "message_stop")) around.finish(events);
          else around.pass(events);
        },
      }),
  );
  stream.keeps = later;
  const charged = (error: unknown) =>
    later && isCorruptTry(error)
      ? chargedGarbage(answer, context, error, place, stream.takeBeginning())
      : error;
  stream
    .run()
    .catch(async (error: unknown) => queue.fail(await charged(error)))
    .catch((error: unknown) => queue.fail(error));
  async function* events() {
    try {
      for (let next = await queue.next(); next !== null; next = await queue.next()) yield next;
    } finally {
      // If the loop stops reading early, nobody wants the rest of the answer.
      queue.leave();
      if (!stream.isOver) call.abort("cancelled");
    }
  }
  return {
    events: events(),
    get usage() {
      return stream.usage;
    },
  };
}

const isCorruptTry = (error: unknown): error is AttemptFailure =>
  error instanceof AttemptFailure && error.status === "garbage";

/**
 * Charges a corrupt answer of which no event came (rule 1.6, service.md "Prices and billing rules"). Such an answer is free only
 * as long as the loop has added nothing to what the client sent. @returns `failure` itself when the body is an error.
 */
async function chargedGarbage(
  answer: UpstreamAnswer,
  context: CodecContext,
  failure: AttemptFailure,
  place: BodyPlace,
  body: Buffer,
): Promise<AttemptFailure | BrokenAnswer> {
  const { upstream, call } = answer;
  const usage = await costOfNoStream(upstream.dialect, context, place, call.received, body);
  if (usage === null) return failure;
  answer.broke("garbage");
  return new BrokenAnswer(failure.error, { upstream: upstream.name, usage, corrupt: true });
}

/** What a body costs that came in place of a stream, read like a whole answer; null: it is an error, and free. */
async function costOfNoStream(
  dialect: Dialect,
  context: CodecContext,
  place: BodyPlace,
  received: number,
  body: Buffer,
): Promise<MessagesUsage | null> {
  const { pool } = place;
  if (pool === null || body.length <= CONVERT_HERE_BYTES)
    return usageOfNoStream(dialect, context, received, body);
  const cost = await new LargeAnswer(pool, place, body).noStream({ dialect, context, received });
  return cost === null ? usageOfBytes(context, received) : cost.usage;
}

/** A stream that may keep the bytes before the first event: if no event comes, its usage is read from them. */
class IterationStream extends ResponseStream<readonly MessagesEvent[]> {
  readonly #kept = new GatheredPieces();
  /** Whether the bytes before the first event are kept. */
  keeps = false;

  /** Returns these bytes, and keeps them no longer. */
  takeBeginning(): Buffer {
    return Buffer.concat(this.#kept.take());
  }

  override data(chunks: readonly Buffer[]): void {
    for (const chunk of this.keeps && this.isOpening ? chunks : []) {
      // A beginning that is longer than any model's is not read (`usageOfNoStream`).
      if (this.#kept.length > MOST_BEGUN_BYTES) break;
      this.#kept.add(chunk);
    }
    super.data(chunks);
    if (this.keeps && !this.isOpening && !this.isOver) this.#kept.take();
  }
}

/** The loop's side of a stream: events wait here until the loop pulls them. */
class EventQueue implements StreamConsumer<readonly MessagesEvent[]> {
  readonly dialect: Dialect;
  readonly #upstream: string;
  readonly #places: ToldPlaces;
  readonly #call: Pick<UpstreamCall, "received">;
  readonly #lease: BodyLease;
  readonly #waiting: { readonly events: readonly MessagesEvent[]; readonly bytes: number }[] = [];
  /** Bytes of the answer that the events were made of that wait, and of all that came. */
  #waitingBytes = 0;
  #takenBytes = 0;
  #failure: unknown = null;
  #over = false;
  #isLeft = false;
  #came = Promise.withResolvers<void>();
  #emptied = Promise.withResolvers<void>();

  constructor(
    dialect: Dialect,
    upstream: string,
    places: ToldPlaces,
    { call, lease }: { readonly call: Pick<UpstreamCall, "received">; readonly lease: BodyLease },
  ) {
    this.dialect = dialect;
    this.#upstream = upstream;
    this.#places = places;
    this.#call = call;
    this.#lease = lease;
  }

  /** The next events; null at the end. */
  async next(): Promise<readonly MessagesEvent[] | null> {
    for (;;) {
      const next = this.#waiting.shift();
      if (next !== undefined) {
        this.#waitingBytes -= next.bytes;
        if (this.#waiting.length === 0) {
          this.#emptied.resolve();
          this.#emptied = Promise.withResolvers();
        }
        return next.events;
      }
      if (this.#failure !== null) throw this.#failure;
      if (this.#over) return null;
      await this.#came.promise;
    }
  }

  /** Nobody pulls any more: what waits is dropped, and what still comes. */
  leave(): void {
    this.#isLeft = true;
    this.#waiting.length = 0;
    this.#waitingBytes = 0;
    this.#emptied.resolve();
  }

  fail(error: unknown): void {
    this.#failure = error;
    this.#wake();
  }

  begin(): void {}

  take(events: readonly MessagesEvent[]): boolean {
    if (this.#isLeft) return true;
    const bytes = this.#call.received - this.#takenBytes;
    this.#takenBytes += bytes;
    this.#waitingBytes += bytes;
    this.#waiting.push({ events, bytes });
    this.#wake();
    return this.#waiting.length < MAX_WAITING && this.#waitingBytes < MAX_WAITING_BYTES;
  }

  drained(): Promise<void> {
    return countUntil(this.#emptied.promise, this.#waitingBytes, this.#lease);
  }

  /** Does nothing: the loop itself observes the usage, with that of earlier iterations. */
  observe(): void {}

  async complete(last: readonly MessagesEvent[]): Promise<void> {
    this.#over = true;
    this.take(last);
  }

  async abandon(error: ApiError, fault: CallFault, usage: MessagesUsage | null): Promise<void> {
    const corrupt = fault === "garbage" || fault === "too_large";
    const told = withToldPlaces(error, this.#places);
    this.fail(usage === null ? told : new BrokenAnswer(told, { upstream: this.#upstream, usage, corrupt }));
  }

  /** The loop charges the stream's `usage`, and logs an error that is not an upstream's. */
  async misread(cause: unknown): Promise<void> {
    this.fail(cause);
  }

  #wake(): void {
    this.#came.resolve();
    this.#came = Promise.withResolvers();
  }
}
