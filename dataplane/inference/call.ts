/**
 * The interface between what asks for an inference (an HTTP request, a batch item) and what serves it.
 * `serve(call)` throws an ApiError as long as nothing was written to the sink; afterwards it ends the answer
 * itself, with the dialect's in-band error where something failed.
 */
import type { Logger } from "pino";
import type { Meter } from "../billing/meter.ts";
import type { Directory, Principal } from "../identity/principal.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { ToolCallLimits } from "../tools/call-limit.ts";
import type { Dialect } from "../dialects/dialect.ts";
import type { Cancellation } from "../lib/cancellation.ts";
import type { Shutdown } from "../lib/shutdown.ts";
import type { RequestSummary } from "../telemetry/request-summary.ts";
import type { AnswerBytes } from "./answer/answer-bytes.ts";

/** Where an answer goes. The bytes of a batch item end in memory, those of a request on the wire. */
export interface AnswerSink {
  /** Status and headers, names in lower case; once, before the first write. */
  start(status: number, headers: Readonly<Record<string, string>>): void;
  /** Sends bytes at once. False when the reader is behind: wait for `drained()` before the next write. */
  write(bytes: AnswerBytes): boolean;
  /** Resolves when there is room again or the reader is gone. */
  drained(): Promise<void>;
  /** Bytes that the reader has not taken yet. */
  readonly waitingBytes: number;
  /** Ends the answer, after these bytes. */
  end(bytes?: AnswerBytes): void;
  /** Aborted when the reader is gone. */
  readonly closed: Cancellation;
}

/** Sends a whole answer. `headers`: all but content type and length. */
export function sendWhole(sink: AnswerSink, body: Buffer, headers: Readonly<Record<string, string>>): void {
  const all: Record<string, string> = {
    "content-type": "application/json",
    "content-length": String(body.length),
  };
  // Most answers have none.
  for (const name in headers) all[name] = headers[name] as string;
  sink.start(200, all);
  sink.end(body);
}

/** Output items of earlier Responses answers, which a client may refer to (rule 2.16). */
export interface OutputItems {
  keep(id: string, json: Buffer | string): void;
  /**
   * Calls `found` with each known item, as the bytes of its JSON, one after the other. Only few are read ahead: `found` ends the
   * reading by throwing.
   * @returns the ids of which it could not be known in time whether there is an item.
   */
  find(
    ids: readonly string[],
    found: (id: string, item: Buffer) => Promise<void> | void,
  ): Promise<readonly string[]>;
}

/** Counts what a body takes beside its own bytes. `take` @throws ApiError 429 or 503 without room; a batch item's may wait for room. */
export interface BodyLease {
  take(bytes: number): Promise<void> | void;
  /** Counts bytes that are there already, whatever room there is. */
  count(bytes: number): void;
  /**
   * Counts bytes of an answer as they come. @returns how many it counts, which are to be given back: of a batch item's answer
   * those that its organization's share has room for. @throws ApiError 429 or 503 without room, but not for a batch item
   */
  receive(bytes: number): number;
  /**
   * Waits until more of a batch item's answer may be read, for a bounded time; null or absent: at once. What comes meanwhile is
   * counted as well as it can.
   */
  mayReadOn?(): Promise<void> | null;
  /** Gives bytes back. */
  giveBack(bytes: number): void;
}

export interface InferenceCall {
  /** `req_…`; idempotency key of everything billed. */
  readonly id: string;
  /** Unix milliseconds. */
  readonly acceptedAt: number;
  readonly dialect: Dialect;
  /** The request body as it came, content encoding removed; at most 32 MiB. */
  readonly body: Buffer;
  /** Counts the bytes of the body: those of files and items are taken before they are put into it (rule 7.2). */
  readonly bodyLease: BodyLease;
  /** The client's headers that matter here, names in lower case and neutral names already folded. */
  readonly headers: {
    readonly "anthropic-version"?: string;
    readonly "anthropic-beta"?: string;
    readonly accept?: string;
    readonly "x-gapura-strict"?: string;
    readonly "x-session-id"?: string;
    readonly "x-gapura-tags"?: string;
  };
  readonly principal: Principal;
  /**
   * Where the caller is looked up again before their limits of a while ago hide a model; absent where these are never older
   * than a second.
   */
  readonly directory?: Pick<Directory, "findAgain">;
  /** The snapshot of the call, from start to end. */
  readonly snapshot: Snapshot;
  readonly meter: Meter;
  /** Set for an item of a batch. */
  readonly batchId: string | null;
  /** Called before the first iteration of a tool loop. @throws ApiError when the loop may not begin now. */
  readonly beginTools?: (limits: ToolCallLimits) => void;
  readonly sink: AnswerSink;
  /** Signals that this process, or the batch, no longer waits for the request; absent: there is no such signal. */
  readonly shutdown?: Shutdown | undefined;
  /** Output items of the organization's recent Responses answers; absent where they mean nothing. */
  readonly items?: OutputItems;
  /** Lines have to name the request's id themselves. */
  readonly log: Logger;
  /** What serving learns of the request (model, upstream, path), for its log line, metrics and span. */
  readonly summary: RequestSummary;
}

export type Serve = (call: InferenceCall) => Promise<void>;

/** Whether a field that would be dropped refuses the request (rule 2.2). */
export const isStrict = ({ headers }: Pick<InferenceCall, "headers">): boolean =>
  headers["x-gapura-strict"]?.toLowerCase() === "true";
