/** What the loop gets for one upstream call: an answer under way, or one that came to nothing. */
import type { Dialect } from "../dialects/dialect.ts";
import type { MessagesEvent, MessagesUsage } from "../dialects/messages/types.ts";
import type { ApiError } from "../lib/api-error.ts";

/** One upstream call under way. */
export interface ModelAnswer {
  /** Name of the upstream that answers. */
  readonly upstream: string;
  readonly dialect: Dialect;
  /** Ends after `message_stop`. @throws BrokenAnswer when the upstream fails or its answer is corrupt. */
  readonly events: AsyncIterable<readonly MessagesEvent[]>;
  /** Usage of the answer so far (`countedUsage`). */
  readonly usage: MessagesUsage;
}

/** An upstream's answer that broke off or cannot be read. */
export class BrokenAnswer extends Error {
  /** The error for the client. */
  readonly error: ApiError;
  /** Name of the upstream. */
  readonly upstream: string;
  /** What the answer used. */
  readonly usage: MessagesUsage;
  /** Whether the answer came to its end and makes no sense; else it broke off. */
  readonly corrupt: boolean;

  constructor(
    error: ApiError,
    facts: { readonly upstream: string; readonly usage: MessagesUsage; readonly corrupt: boolean },
  ) {
    super(error.message, { cause: error });
    this.error = error;
    this.upstream = facts.upstream;
    this.usage = facts.usage;
    this.corrupt = facts.corrupt;
  }
}
