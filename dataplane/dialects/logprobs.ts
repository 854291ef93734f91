/**
 * Log probabilities of a text's tokens, which Chat and Responses both have and Messages has not (rule 2.1). In the hub
 * they stand beside the text that they are of, in the form that both dialects share.
 */
import type { Carry } from "./codecs.ts";
import { arrayOf, countOf, objectOf, stringOf } from "./fields.ts";
import type { JsonValue, Logprob, TokenLogprob } from "./messages/types.ts";

/** Value of `include` by which a Responses client asks for log probabilities. */
export const LOGPROBS_INCLUDE = "message.output_text.logprobs";

/** Official limit of `top_logprobs`. */
const TOP_MAX = 20;
/** Most bytes of one token; a longer one is none, and each of its bytes would become a number. */
const BYTES_MAX = 1_024;

/**
 * Whether the client asks for log probabilities and may be shown them: not with server tools (service.md "What a
 * request with server tools may hold").
 */
export function asksLogprobs({
  dialect,
  request,
  serverTools,
  compacts,
}: Pick<Carry, "dialect" | "request" | "serverTools" | "compacts">): boolean {
  if (serverTools || compacts) return false;
  if (dialect === "chat") return request["logprobs"] === true;
  if (dialect !== "responses") return false;
  return (
    countOf(request["top_logprobs"]) > 0 || arrayOf(request["include"])?.includes(LOGPROBS_INCLUDE) === true
  );
}

/** Reads an upstream's list; entries that are no tokens are left out. */
export const readLogprobs = (value: unknown): Logprob[] =>
  (arrayOf(value) ?? []).flatMap((entry) =>
    readToken(entry).map((token) => ({
      ...token,
      top_logprobs: (arrayOf(objectOf(entry)?.["top_logprobs"]) ?? []).slice(0, TOP_MAX).flatMap(readToken),
    })),
  );

function readToken(value: JsonValue): TokenLogprob[] {
  const entry = objectOf(value);
  const token = stringOf(entry?.["token"]);
  const logprob = entry?.["logprob"];
  if (token === null || token.length > BYTES_MAX || typeof logprob !== "number") return [];
  return [{ token, logprob, bytes: readBytes(entry?.["bytes"]) ?? [...Buffer.from(token)] }];
}

/** A token may be part of a character: then only its bytes say which. */
function readBytes(value: unknown): number[] | null {
  const bytes = arrayOf(value);
  if (bytes === null || bytes.length > BYTES_MAX) return null;
  return bytes.every((byte) => typeof byte === "number") ? bytes : null;
}

/** Estimates the characters that log probabilities take as JSON. */
export const lengthOfLogprobs = (logprobs: readonly Logprob[]): number =>
  logprobs.reduce((sum, one) => sum + lengthOfToken(one) + sumOf(one.top_logprobs), 0);

const sumOf = (tokens: readonly TokenLogprob[]): number =>
  tokens.reduce((sum, token) => sum + lengthOfToken(token), 0);

const lengthOfToken = ({ token, bytes }: TokenLogprob): number => 48 + token.length + 4 * bytes.length;

/** Tokens of a text whose end may be held back and dropped: each waits until its text is passed on. */
export class WaitingLogprobs {
  readonly #waiting: Logprob[] = [];
  /** Bytes of text that were passed on ahead of their tokens. */
  #ahead = 0;

  push(logprobs: readonly Logprob[]): void {
    for (const one of logprobs) this.#waiting.push(one);
  }

  /** Returns the tokens that are wholly passed on with `said`. */
  take(said: string): Logprob[] {
    if (this.#waiting.length === 0) return [];
    this.#ahead += Buffer.byteLength(said);
    let count = 0;
    for (const { bytes } of this.#waiting) {
      if (bytes.length > this.#ahead) break;
      this.#ahead -= bytes.length;
      count += 1;
    }
    return this.#waiting.splice(0, count);
  }

  /** Returns all tokens that still wait, at the end of the text. */
  rest(): Logprob[] {
    return this.#waiting.splice(0);
  }
}
