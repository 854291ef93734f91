/** Asks the gateway under judgement, within the budget, and keeps what it said byte by byte. */
import { setTimeout as sleep } from "node:timers/promises";
import { Skipped } from "./check.ts";
import { boundOf, reportedTokens } from "./tokens.ts";

/** What is kept of one answer at most. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024;

export interface Question {
  readonly method: string;
  /** From `/v1` on. */
  readonly path: string;
  /** In lower case. The key stands as `{key}`, the admin key as `{admin-key}`. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | Buffer<ArrayBuffer>;
  /** Waits so long between two reads of the answer. */
  readonly readEveryMs?: number;
  /** Goes away once this much of the answer is there, or after so long without any. */
  readonly leave?: { readonly afterBytes: number } | { readonly afterMs: number };
}

export interface Answer {
  readonly question: Question;
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Buffer;
  readonly text: string;
  /** It came to its end. */
  readonly ended: boolean;
  /** Milliseconds after the request at which bytes came. */
  readonly reads: readonly number[];
}

export interface ClientOptions {
  /** Without `/v1`. */
  readonly url: string;
  readonly key: string;
  readonly adminKey?: string | null;
  /** Sent with each request, over what a check sets. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly budgetTokens: number;
}

export class Client {
  readonly #options: ClientOptions;
  #spent = 0;
  #requests = 0;

  constructor(options: ClientOptions) {
    this.#options = options;
  }

  get url(): string {
    return this.#options.url;
  }

  /** Tokens that answers reported, and for those without a report the most that they can have cost. */
  get spent(): number {
    return this.#spent;
  }

  get requests(): number {
    return this.#requests;
  }

  /** Names of the headers that go with each request: their values may be secret. */
  get ownHeaders(): readonly string[] {
    return Object.keys(this.#options.headers ?? {});
  }

  /** @throws Skipped when the request may cost more than is left; whatever `fetch` throws before the answer's head. */
  async ask(question: Question, signal: AbortSignal): Promise<Answer> {
    const { key, adminKey, url, headers, budgetTokens } = this.#options;
    const bound = boundOf(question);
    if (bound > 0 && this.#spent + bound > budgetTokens)
      throw new Skipped("may cost more than is left of --budget-tokens");
    this.#spent += bound;
    this.#requests += 1;
    const filled = Object.entries({ ...question.headers, ...headers }).map(
      ([name, value]): [string, string] => [
        name,
        value.replace("{key}", key).replace("{admin-key}", adminKey ?? ""),
      ],
    );
    const leaving = new AbortController();
    const { leave } = question;
    const timer =
      leave !== undefined && "afterMs" in leave
        ? setTimeout(() => leaving.abort(), leave.afterMs)
        : undefined;
    const started = performance.now();
    try {
      const response = await fetch(url + question.path, {
        method: question.method,
        headers: filled,
        ...(question.body === undefined ? {} : { body: question.body }),
        signal: AbortSignal.any([signal, leaving.signal]),
        redirect: "manual",
      });
      const body = await read(response, question, { started, leaving, signal });
      const answer = {
        question,
        status: response.status,
        headers: response.headers,
        ...body,
        text: body.bytes.toString("utf8"),
      };
      if (answer.ended) this.#spent += reportedTokens(answer, bound) - bound;
      return answer;
    } catch (error) {
      if (!leaving.signal.aborted) throw error;
      return {
        question,
        status: 0,
        headers: new Headers(),
        bytes: Buffer.alloc(0),
        text: "",
        ended: false,
        reads: [],
      };
    } finally {
      clearTimeout(timer);
    }
  }
}

async function read(
  response: Response,
  { readEveryMs = 0, leave }: Question,
  { started, leaving, signal }: { started: number; leaving: AbortController; signal: AbortSignal },
): Promise<Pick<Answer, "bytes" | "ended" | "reads">> {
  const pieces: Uint8Array[] = [];
  const reads: number[] = [];
  let size = 0;
  let ended = true;
  try {
    for await (const piece of response.body ?? []) {
      pieces.push(piece);
      reads.push(performance.now() - started);
      size += piece.length;
      if (leave !== undefined && "afterBytes" in leave && size >= leave.afterBytes) {
        ended = false;
        leaving.abort();
        break;
      }
      if (size > MAX_ANSWER_BYTES) throw new Error(`an answer of more than ${MAX_ANSWER_BYTES} bytes`);
      if (readEveryMs > 0) await sleep(readEveryMs, undefined, { signal });
    }
  } catch (error) {
    // A broken connection is an answer that has no end; a check's own time limit is told as such.
    if (signal.aborted || size > MAX_ANSWER_BYTES) throw error;
    ended = false;
  }
  return { bytes: Buffer.concat(pieces), ended, reads };
}
