/**
 * What a scripted upstream says, as plain data: it can be written in a test, sent over HTTP to a child process, or
 * stand as JSON in a user message. One `Step` answers one upstream request.
 */
import type { Dialect } from "../../../dataplane/dialects/dialect.ts";

/** Token counts as the upstream reports them; the four input classes do not overlap. Absent ones are estimated. */
export interface ScriptedUsage {
  readonly input?: number;
  readonly cacheRead?: number;
  readonly cacheWrite5m?: number;
  readonly cacheWrite1h?: number;
  /** Reasoning included. */
  readonly output?: number;
  readonly reasoning?: number;
  /** Chat: tokens of audio, part of input and of output. */
  readonly audio?: readonly [heard: number, spoken: number];
  /** Chat: tokens of images made, part of output. */
  readonly images?: number;
  /** Messages: what compactions before the answer took; no part of the others. */
  readonly compactions?: readonly { readonly input: number; readonly output: number }[];
}

export type Part =
  | {
      readonly type: "text";
      readonly text: string;
      /** Written as they are: citations in Messages, annotations in Chat and Responses. */
      readonly citations?: readonly object[];
    }
  /** Chat: `reasoning_content`. Responses: a reasoning item with one summary part. */
  | {
      readonly type: "thinking";
      readonly text: string;
      readonly signature?: string;
    }
  /** Messages: a redacted block. Responses: a reasoning item with only `encrypted_content`. Chat: nothing. */
  | { readonly type: "redacted"; readonly data: string }
  /** `input` as a string goes out as it is, even when it is not JSON. */
  | {
      readonly type: "tool";
      readonly name: string;
      readonly input: object | string;
      readonly id?: string;
    }
  | { readonly type: "refusal"; readonly text: string }
  /** A content block (Messages) or output item (Responses) as it is, such as a native web search's. */
  | { readonly type: "raw"; readonly value: object };

export type Stop = "end" | "length" | "tool" | "refusal" | "stop_sequence";

export interface Answer {
  readonly parts: readonly Part[];
  /** Default: `tool` when there is a tool part, `refusal` when there is a refusal, else `end`. */
  readonly stop?: Stop;
  readonly stopSequence?: string;
  /** Chat: what is spoken (`data` in base64) and the addresses of images made, behind the parts. */
  readonly media?: {
    readonly speech?: { readonly data: string; readonly transcript: string };
    readonly images?: readonly string[];
  };
  readonly usage?: ScriptedUsage;
  /** Characters in one streamed delta; default: one word each. */
  readonly deltaChars?: number;
  /** Default: the model of the request. */
  readonly model?: string;
  /** By what it says that it was served; absent: the standard of its dialect. */
  readonly tiers?: {
    readonly service_tier?: string;
    readonly speed?: string;
    readonly inference_geo?: string;
  };
  /** Top-level fields added to the whole answer (or to the first event's object). */
  readonly extra?: object;
}

/** What goes wrong. Events are counted from 0 as they are written, bytes over the whole body. */
export interface Faults {
  readonly delayHeadersMs?: number;
  /** After the headers, before the first byte of the body. */
  readonly delayFirstByteMs?: number;
  readonly delayBetweenEventsMs?: number;
  /** Waits this long before that event. */
  readonly delayAtEvent?: { readonly event: number; readonly ms: number };
  /** Never answers. */
  readonly hang?: boolean;
  /** Stops writing before that event and leaves the connection open. */
  readonly stallAtEvent?: number;
  readonly stallAtByte?: number;
  /** Closes the connection in an orderly way (TCP FIN, without the end of the chunked body). */
  readonly cutAtEvent?: number;
  readonly cutAtByte?: number;
  /** Resets the connection (TCP RST): before the headers, or at a byte of the body. */
  readonly reset?: boolean;
  readonly resetAtByte?: number;
  /** The JSON of that event (or of the whole answer) is broken. */
  readonly malformedAtEvent?: number;
  readonly malformed?: boolean;
  /** A web page with status 200. */
  readonly html?: boolean;
  /** No byte of body, status 200. */
  readonly empty?: boolean;
  /** Ends the body in an orderly way without the terminal event. Chat: without `finish_reason` and `[DONE]`. */
  readonly noTerminal?: boolean;
  /** Chat only: leaves out `data: [DONE]`. */
  readonly noDone?: boolean;
  /** Leaves out every usage report. */
  readonly noUsage?: boolean;
  /** A text of that many bytes in one event (or in the whole answer). */
  readonly hugeBytes?: number;
  /** An error inside the stream instead of that event, after which the stream ends. */
  readonly errorAtEvent?: {
    readonly event: number;
    readonly type?: string;
    readonly message?: string;
  };
  /** Bytes per write, regardless of event borders. */
  readonly chunkBytes?: number;
  /** All events in one write. */
  readonly atOnce?: boolean;
}

export type Step =
  | {
      readonly answer: Answer;
      readonly faults?: Faults;
      readonly headers?: Readonly<Record<string, string>>;
    }
  /** An error in the dialect's own body; `message` is the provider's text. */
  | {
      readonly error: {
        readonly status: number;
        readonly message?: string;
        readonly type?: string;
      };
      readonly faults?: Faults;
      readonly headers?: Readonly<Record<string, string>>;
    }
  /** Exact bytes, streamed or not. */
  | {
      readonly raw: {
        readonly status?: number;
        readonly body: string | Uint8Array;
        readonly contentType?: string;
      };
      readonly faults?: Faults;
      readonly headers?: Readonly<Record<string, string>>;
    };

/** One event of a stream, before framing. `event` is empty in Chat. */
export interface WireEvent {
  readonly event: string;
  readonly data: string;
  /** Belongs to the end that `noTerminal` leaves out. */
  readonly terminal?: boolean;
}

/** What a renderer may use besides the answer: nothing is random, so that golden files stay put. */
export interface RenderContext {
  readonly dialect: Dialect;
  readonly model: string;
  /** Goes into every id: the number of this request at the upstream, from 1. */
  readonly serial: number | string;
  /** Unix seconds. */
  readonly createdAt: number;
  /** Chat: the client asked for the usage chunk. */
  readonly includeUsage: boolean;
  /** Responses: the client asked for the content of reasoning. */
  readonly includeReasoning: boolean;
  /** Responses: what `text` said of the answer's form, which the answer repeats. */
  readonly textFormat: object;
  /** Chat: number of choices. */
  readonly choices: number;
  /** Estimated tokens of the request, where the script does not say. */
  readonly inputTokens: number;
  readonly noUsage: boolean;
}

export function text(value: string, usage?: ScriptedUsage): Step {
  return {
    answer: {
      parts: [{ type: "text", text: value }],
      ...(usage === undefined ? {} : { usage }),
    },
  };
}

export function toolCall(name: string, input: object | string, id?: string): Step {
  return {
    answer: { parts: [{ type: "tool", name, input, ...(id === undefined ? {} : { id }) }] },
  };
}

export function stopOf(answer: Answer): Stop {
  if (answer.stop !== undefined) return answer.stop;
  if (answer.parts.some(({ type }) => type === "tool")) return "tool";
  return answer.parts.some(({ type }) => type === "refusal") ? "refusal" : "end";
}

/** Every count filled in. */
export function usageOf(answer: Answer, context: RenderContext): Required<ScriptedUsage> {
  const characters = answer.parts.reduce((sum, part) => sum + JSON.stringify(part).length - 20, 0);
  return {
    input: context.inputTokens,
    cacheRead: 0,
    cacheWrite5m: 0,
    cacheWrite1h: 0,
    output: Math.max(1, Math.ceil(characters / 4)),
    reasoning: 0,
    audio: [0, 0],
    images: 0,
    compactions: [],
    ...answer.usage,
  };
}

/** Cuts a text into the pieces that are streamed: words with their following space, or `deltaChars` characters. */
export function pieces(value: string, deltaChars: number | undefined): string[] {
  if (deltaChars === undefined) return value.match(/\s*\S+\s*?(?=\s|$)|\s+/gu) ?? [];
  const characters = Array.from(value);
  const result: string[] = [];
  for (let at = 0; at < characters.length; at += deltaChars) {
    result.push(characters.slice(at, at + deltaChars).join(""));
  }
  return result;
}

export function argumentsOf(input: object | string): string {
  return typeof input === "string" ? input : JSON.stringify(input);
}
