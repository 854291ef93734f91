/**
 * The client's side of a loop: one message over all iterations, with block indexes that run on. Results of calls that
 * ran before a model was asked wait for the message to begin.
 */
import { messageStart, wholeBlock } from "../dialects/messages/events.ts";
import type { MessagesEvent } from "../dialects/messages/types.ts";
import { cacheWrites } from "../dialects/usage.ts";
import type { NewId } from "../lib/ids.ts";

export interface MessageStreamOptions {
  /** Hands events to the client; resolves when there is room for more. */
  readonly emit: (events: readonly MessagesEvent[]) => Promise<void>;
  /** Whether the answer is streamed. */
  readonly streamed: boolean;
  readonly model: string;
  readonly newId: NewId;
}

export class MessageStream {
  readonly #options: MessageStreamOptions;
  #waiting: MessagesEvent[] = [];
  /** Index of the next content block. */
  nextIndex = 0;
  /** Whether the message has begun. */
  started = false;

  constructor(options: MessageStreamOptions) {
    this.#options = options;
  }

  async say(events: readonly MessagesEvent[]): Promise<void> {
    if (events.length === 0) return;
    if (this.started) return this.#options.emit(events);
    const start = events.findIndex(({ type }) => type === "message_start");
    if (start === -1) {
      this.#waiting.push(...events.filter(({ type }) => type !== "ping"));
      return;
    }
    this.started = true;
    const waiting = this.#waiting.splice(0);
    await this.#options.emit([
      ...events.slice(start, start + 1).map(withSplit),
      ...waiting,
      ...events.slice(start + 1),
    ]);
  }

  /** Emits a whole block. */
  async block(block: Parameters<typeof wholeBlock>[0]): Promise<void> {
    const events = wholeBlock(block, this.nextIndex);
    this.nextIndex += 1;
    await this.say(events);
  }

  /** Begins the message, with the results that wait for it, where no model has begun one. */
  async begin(): Promise<void> {
    if (this.started) return;
    const { newId, model } = this.#options;
    await this.say([messageStart(newId("msg"), model, { input_tokens: 0, output_tokens: 0 })]);
  }

  /** Sends a ping. Resent calls run before a model is asked: a stream that waits for them begins here. */
  async ping(): Promise<void> {
    if (this.#options.streamed) await this.begin();
    await this.say([{ type: "ping" }]);
  }
}

/** Splits the cache writes by their lifetimes, as the whole answer does: SDKs take the split from the first event alone. */
function withSplit(event: MessagesEvent): MessagesEvent {
  if (event.type !== "message_start" || event.message.usage.cache_creation) return event;
  const { fiveMinutes, oneHour } = cacheWrites(event.message.usage);
  const cache_creation = { ephemeral_5m_input_tokens: fiveMinutes, ephemeral_1h_input_tokens: oneHour };
  return { ...event, message: { ...event.message, usage: { ...event.message.usage, cache_creation } } };
}
