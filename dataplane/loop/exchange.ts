/** What the loop gets for one upstream call: an answer under way, or one that was spoiled. */
import type { Dialect } from "../dialects/dialect.ts";
import type { MessagesEvent, MessagesUsage } from "../dialects/messages/types.ts";
import type { ApiError } from "../lib/api-error.ts";

/** One upstream call under way. */
export interface Exchange {
  /** Name of the upstream that answers. */
  readonly upstream: string;
  readonly dialect: Dialect;
  /** Ends after `message_stop`; throws an ApiError when the upstream fails or its answer is corrupt. */
  readonly events: AsyncIterable<readonly MessagesEvent[]>;
}

/** What is known of an answer that an upstream spoiled. */
export interface Spoiled {
  /** Name of the upstream. */
  readonly upstream: string;
  /** What it cost: as it reports, else by estimate. */
  readonly usage: MessagesUsage;
  /** It came to its end and makes no sense; else it broke off. */
  readonly corrupt: boolean;
}

/** An upstream answered, but nothing can be made of it. */
export class SpoiledAnswer extends Error {
  readonly error: ApiError;
  readonly spoiled: Spoiled;

  constructor(error: ApiError, spoiled: Spoiled) {
    super(error.message, { cause: error });
    this.error = error;
    this.spoiled = spoiled;
  }
}
