/**
 * What a dialect must be able to do at its two edges. Messages form is the hub: a conversion is one dialect's
 * client edge and another one's upstream edge. Everything here is pure: ids, time and sealing are arguments.
 */
import type { ApiError } from "../lib/api-error.ts";
import type { NewId } from "../lib/ids.ts";
import type {
  JsonObject,
  MessagesEvent,
  MessagesRequest,
  MessagesResponse,
  MessagesUsage,
  UrlCitation,
} from "./messages/types.ts";
import type { Dialect } from "./dialect.ts";
import type { DropListener } from "./drop-listener.ts";
import type { CountedOutput } from "./output-estimate.ts";
import type { UsageContext } from "./usage.ts";

/** Seals a blob to the organization, and opens one again; null when it is foreign, damaged or not ours. */
export interface Sealer {
  seal(plain: string): string;
  open(sealed: string): string | null;
}

/** Input of a codec beside the body. One for each request. */
export interface CodecContext extends UsageContext {
  readonly newId: NewId;
  /** Unix seconds at which the answer is said to be created. */
  readonly createdAt: number;
  /** Unix seconds, for when an answer is said to be complete; absent: `createdAt`. */
  readonly now?: () => number;
  readonly sealer: Sealer;
  /** Public model id, as the client sees it. */
  readonly model: string;
  /** The `req_…` id that a Messages error repeats in its body. */
  readonly requestId?: string;
  /** Stop sequences that the upstream does not apply: its answer is cut here (cut-at-stops.ts). Absent: none. */
  readonly stops?: readonly string[];
  /** Ids of calls in the conversation that the tool loop runs before it asks a model (rule 3.6). */
  readonly owed?: readonly string[];
  /** Names of the functions that the tool loop runs itself. */
  readonly serverTools?: ReadonlySet<string>;
  /** Whether the client is shown the log probabilities of the answer's tokens (logprobs.ts). */
  readonly logprobs?: boolean;
  /** Whether the client is shown the citations of pages that the upstream made by itself (url-citations.ts). */
  readonly annotations?: boolean;
  /** Called with every finished output item of a Responses answer; absent: none is kept. */
  readonly keepItem?: KeepItem;
}

/** Keeps an output item for later references. `json` is the whole item, with fields that the client did not ask for. */
export type KeepItem = (id: string, json: Buffer | string) => void;

/**
 * Derives an answer's citations, its markdown links to URLs that tool results named (service.md "Citations in Responses
 * and Chat"). Called once for each finished text: a Responses content part when it closes, a Chat answer's whole joined
 * text. The tool loop gives it, which knows the results so far.
 */
export type Annotate = (text: string) => readonly UrlCitation[];

/**
 * What travels beside a request in Messages form: the client's own body, so that what Messages cannot hold
 * crosses between Chat and Responses (rule 2.1, table in request-fields.ts) and answers can echo it; and what the
 * client's edge must remember to write its answer.
 */
export interface Carry {
  readonly dialect: Dialect;
  /** The client's whole parsed body. */
  readonly request: JsonObject;
  /** Whether the client declares a server tool: the request goes through Messages form. */
  readonly serverTools: boolean;
  /** Tool ids and names that were replaced by an alias: alias → the client's own. */
  readonly aliases: ReadonlyMap<string, string>;
  /** Namespaced function tools flattened for the model: flat name → namespace and name. */
  readonly namespaces: ReadonlyMap<string, { readonly namespace: string; readonly name: string }>;
  /** The client's stop sequences. */
  readonly stops: readonly string[];
  /** Whether the answer is the summary of a Responses client's `compaction` item (responses/compaction.ts). */
  readonly compacts: boolean;
  /** Path in the client's body of a turn, content block or tool that not every target can hold, for refusals. */
  readonly places: { get(node: object): string | undefined };
}

/** The model a request is written for. */
export interface Target {
  /** The model's name at the upstream. */
  readonly upstreamModel: string;
  readonly maxOutputTokens: number;
  readonly samplingParameters: boolean;
  readonly thinking: boolean;
  /** Toward Responses: whether `reasoning.encrypted_content` is asked for, so that reasoning can be sent back. */
  readonly encryptedReasoning: boolean;
  /** Whether the upstream's account serves the client's organization alone: unsealed reasoning may go there. */
  readonly ownAccount: boolean;
  readonly imageInput: boolean;
  readonly pdfInput: boolean;
}

/** One server-sent event, framing removed. */
export interface SseEvent {
  /** The `event:` field; empty when there was none. */
  readonly event: string;
  readonly data: string;
}

/** Why an upstream's stream is over. */
export type EndCause =
  /** The connection closed in the ordinary way; the stepper knows whether that was too early. */
  | { readonly kind: "eof" }
  /** Cut, timed out, or otherwise failed. */
  | { readonly kind: "failed"; readonly error: ApiError };

/**
 * A stream conversion, one event at a time. A stepper keeps its own small state; `step` and `end` are
 * deterministic. After `end` returned, or an error was thrown, it is finished.
 */
export interface Stepper<In, Out> {
  /** @throws ApiError when the upstream's event cannot be read or is itself an error. */
  step(event: In): Out[];
  /** Returns the last events. @throws ApiError when the upstream stopped before its end. */
  end(cause: EndCause): Out[];
}

/** Reads an upstream's stream. */
export interface StreamReader extends Stepper<SseEvent, MessagesEvent> {
  /** Usage of the answer so far, also of one that fails (`countedUsage`). */
  readonly usage: MessagesUsage;
  /** Responses: whether it reported its own failure, before it reported usage or wrote. */
  readonly isFree?: boolean;
  /** Chat: whether the answer has failed and only its usage may still come. */
  readonly awaitsReport?: boolean;
  /** Characters of the answer that are kept: arguments of calls, and what waits for its turn. */
  readonly keptCharacters: number;
}

/** Every event of a stream but its last. */
export type EarlyEvent = Exclude<MessagesEvent, { type: "message_stop" }>;

/** Writes a converted stream in the client's dialect, as ready-made bytes of server-sent events (write-events.ts). */
export interface StreamWriter {
  /** Bytes for one event. */
  write(event: EarlyEvent): string;
  /**
   * Bytes for `message_stop`, which may only leave once the request is charged (design.md §5: `message_stop`;
   * `response.completed|incomplete`; the chunk with `finish_reason` and what follows).
   */
  terminal(): string;
  /** The dialect's in-band error, which ends the stream. */
  fail(error: ApiError): string;
  /** Characters of the answer that are kept until its end, where it is told once more or its links are cited. */
  readonly keptCharacters: number;
}

/** The request half of a dialect: in from a client, out to an upstream. */
export interface RequestCodec {
  /** The client's edge. @throws ApiError naming the field's path in this dialect's own style. */
  readRequest(
    body: JsonObject,
    context: CodecContext,
  ): { readonly request: MessagesRequest; readonly carry: Carry };
  /**
   * The upstream's edge.
   * @throws ApiError when the target cannot hold what the client asked for and dropping it would change the answer.
   */
  writeRequest(request: MessagesRequest, carry: Carry, target: Target, notes: DropListener): JsonObject;
}

/** The answer half of a dialect: in from an upstream, out to a client, whole and streamed. */
export interface AnswerCodec {
  // The client's edge.
  writeResponse(
    response: MessagesResponse,
    carry: Carry,
    context: CodecContext,
    annotate?: Annotate,
  ): JsonObject;
  writeStream(carry: Carry, context: CodecContext, annotate?: Annotate): StreamWriter;
  // The upstream's edge.
  /** @throws ApiError `upstream_error` when mandatory parts are missing. */
  readResponse(body: JsonObject, context: CodecContext): MessagesResponse;
  readStream(context: CodecContext): StreamReader;
  /** Counts the output of a whole answer (output-estimate.ts). */
  written(body: JsonObject): CountedOutput;
}

export interface Codec extends RequestCodec, AnswerCodec {}
