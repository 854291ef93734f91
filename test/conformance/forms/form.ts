/** How one dialect is asked and read, so that a check can be written once for all three. */
import type { Dialect } from "../../../dataplane/dialects/dialect.ts";
import type { Fields } from "../../grammar/sse.ts";
import type { Question } from "../client.ts";

export interface Wish {
  readonly prompt: string;
  /** Default: 200, enough for models that think before they speak. */
  readonly maxTokens?: number;
  readonly stream?: boolean;
  readonly tools?: readonly Tool[];
  readonly choice?: "auto" | "required" | "none";
  /** False: one call at a time. */
  readonly parallel?: false;
  readonly stop?: string;
}

export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly parameters: object;
}

export interface Call {
  readonly id: string;
  readonly name: string;
  /** Parsed; undefined when it is not JSON. */
  readonly input: unknown;
}

/** What a whole answer says, in words that the dialects share. */
export interface Said {
  readonly text: string;
  readonly calls: readonly Call[];
  readonly stop: "end" | "length" | "tool" | "stop sequence" | "other";
  /** Input with what was cached; null where none is reported. */
  readonly usage: {
    readonly input: number;
    readonly output: number;
    readonly cacheRead: number;
    readonly total: number | null;
  } | null;
}

export interface Form {
  readonly dialect: Dialect;
  readonly path: string;
  /** The header that carries the request's id. */
  readonly requestIdHeader: string;
  /** A POST of this body. */
  question(body: object | string | Buffer<ArrayBuffer>, more?: Partial<Question>): Question;
  body(wish: Wish): Fields;
  said(answer: Fields): Said;
  /** The next turn: the whole answer, and a result for each of its calls. */
  followUp(wish: Wish, answer: Fields, result: string): Fields;
  /** The body lacks what it must have besides a model. */
  readonly required: "messages" | "input";
  /** What is wrong with a stream's order; `strict` says which of it only Gapura promises. */
  orderFaults(stream: string, options?: { includeUsage?: boolean }): string[];
  readonly houseRules: readonly RegExp[];
  /** The vendor's words for an error of this status; null: any. */
  errorType(status: number): string | null;
}

export const MAX_TOKENS = 200;

export const json = (body: object | string | Buffer<ArrayBuffer>) =>
  typeof body === "string" || body instanceof Buffer ? body : JSON.stringify(body);
