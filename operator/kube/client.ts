/**
 * Calls to the API server over one pool of connections. Credentials that it refuses are read anew: they are replaced
 * while we run, tokens and certificates alike.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, type Dispatcher, Pool, ProxyAgent, request } from "undici";
import { z } from "zod";
import { readAtMost } from "../read-answer.ts";
import type { Access } from "./access.ts";

const CALL_TIMEOUT_MS = 15_000;
const CONNECT_TIMEOUT_MS = 5000;
/** Longest answer; parsing holds several times as much. A list that is longer is asked for in smaller pages. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024;
/** Longest watch event: etcd takes objects of 1.5 MiB, and JSON may escape every byte of one. */
const MAX_EVENT_BYTES = 16 * 1024 * 1024;
/** How long connections made with an old client certificate may go on after it was renewed. */
const RETIRE_MS = 60_000;
/** Shortest time between two readings of the credentials, however many refusals there are. */
const READ_PAUSE_MS = 1000;
/** Longest `Retry-After` that is obeyed; the API server asks for less when it is well. */
const LONGEST_RETRY_AFTER_MS = 30_000;

export type Verb = "GET" | "POST" | "PUT" | "PATCH";

export interface Call {
  readonly method: Verb;
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  /** Form of a PATCH. */
  readonly patch?: "apply" | "merge";
  readonly accept?: string;
  readonly signal?: AbortSignal;
  /** Called when the request is written to its connection, however long it waited for one; its error fails the call. */
  readonly permit?: () => void;
}

export interface WatchCall {
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly accept?: string | undefined;
  /** A watch on which nothing arrives for so long is dead. */
  readonly idleMs: number;
  readonly signal: AbortSignal;
}

/** An answer of the API server that is no success. */
export class KubeError extends Error {
  readonly status: number;
  /** `NotFound`, `AlreadyExists`, `Conflict`, … */
  readonly reason: string;
  /** How long the server asks us to wait, bounded; 0: it does not. */
  readonly retryAfterMs: number;

  constructor(status: number, reason: string, message: string, retryAfterMs = 0) {
    super(message);
    this.name = "KubeError";
    this.status = status;
    this.reason = reason;
    this.retryAfterMs = retryAfterMs;
  }
}

/** An answer that does not fit into the memory that is meant for one. */
export class AnswerTooLarge extends Error {
  constructor() {
    super("the API server's answer is too large");
    this.name = "AnswerTooLarge";
  }
}

/** Returns how long the API server wants to be left alone after this failure, in milliseconds. */
export const retryAfterMs = (error: unknown): number => (error instanceof KubeError ? error.retryAfterMs : 0);

export const isStatus = (error: unknown, ...statuses: readonly number[]): error is KubeError =>
  error instanceof KubeError && statuses.includes(error.status);

const failureSchema = z.object({
  code: z.number().int().optional(),
  reason: z.string().optional(),
  message: z.string().optional(),
});

const contentTypes = {
  apply: "application/apply-patch+yaml",
  merge: "application/merge-patch+json",
} as const;

/** The name under which the operator owns fields. */
const FIELD_MANAGER = "gapura-operator";

export class KubeApi {
  readonly #load: () => Promise<Access>;
  readonly #count: (method: string, status: number) => void;
  readonly #readTimeoutMs: number;
  #access: Access | null = null;
  #reading: Promise<void> | null = null;
  /** Monotonic milliseconds. */
  #readAt = -Infinity;
  /** Whether the credentials have to be read again: the server refused them, or a call or the last reading failed. */
  #isDoubted = false;
  #dispatcher: { readonly key: string; readonly value: Dispatcher } | null = null;
  #closed = false;
  readonly #last = new AbortController();

  /**
   * `load` reads the credentials, again once they are stale or refused. `count` is called for each answer, with status
   * 0 when there is none. `readTimeoutMs`: 15 s unless a test is in a hurry.
   */
  constructor(
    load: () => Promise<Access>,
    count: (method: string, status: number) => void = () => {},
    readTimeoutMs = CALL_TIMEOUT_MS,
  ) {
    this.#load = load;
    this.#count = count;
    this.#readTimeoutMs = readTimeoutMs;
  }

  /** @throws KubeError, AnswerTooLarge; another error when the server does not answer. */
  async call(call: Call): Promise<unknown> {
    const { method, path, query = {}, body, patch } = call;
    const ends = [AbortSignal.timeout(CALL_TIMEOUT_MS), this.#last.signal];
    const signal = AbortSignal.any(call.signal === undefined ? ends : [call.signal, ...ends]);
    const parameters = new URLSearchParams(query);
    if (method !== "GET") parameters.set("fieldManager", FIELD_MANAGER);
    if (patch === "apply") parameters.set("force", "true");
    const target = await this.#target(path, parameters);
    const { permit } = call;
    try {
      const answer = await request(target.url, {
        method,
        dispatcher: permit === undefined ? target.dispatcher : target.dispatcher.compose(permitted(permit)),
        headers: {
          ...target.headers,
          accept: call.accept ?? "application/json",
          ...(body === undefined
            ? {}
            : { "content-type": patch === undefined ? "application/json" : contentTypes[patch] }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        signal,
      });
      this.#count(method, answer.statusCode);
      return this.#parse(path, answer, await readBounded(answer.body));
    } catch (error) {
      if (!(error instanceof KubeError || error instanceof AnswerTooLarge)) {
        this.#count(method, 0);
        // A refused certificate shows only as a connection error, one of many.
        this.#isDoubted = true;
      }
      throw error;
    }
  }

  /** Yields the events of one watch until the server ends it. @throws when it breaks or falls silent. */
  async *watch({ path, query, accept, idleMs, signal }: WatchCall): AsyncGenerator {
    const target = await this.#target(path, new URLSearchParams({ ...query, watch: "true" }));
    const answer = await request(target.url, {
      method: "GET",
      dispatcher: target.dispatcher,
      headers: { ...target.headers, accept: accept ?? "application/json" },
      signal,
      headersTimeout: CALL_TIMEOUT_MS,
      bodyTimeout: idleMs,
    }).catch((error: unknown) => {
      this.#isDoubted = true;
      throw error;
    });
    this.#count("WATCH", answer.statusCode);
    if (answer.statusCode !== 200) this.#parse(path, answer, await readBounded(answer.body));
    yield* jsonLines(answer.body);
  }

  /** Fails the calls that are not answered within `ms`: a server that hangs must not hold the process beyond its grace. */
  endWithin(ms: number): void {
    setTimeout(() => this.#last.abort(), ms).unref();
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#dispatcher?.value.destroy();
  }

  #parse(path: string, { statusCode, headers }: Dispatcher.ResponseData, text: string): unknown {
    if (statusCode >= 200 && statusCode < 300) return JSON.parse(text) as unknown;
    if (statusCode === 401) this.#isDoubted = true;
    throw failureOf(path, statusCode, headers["retry-after"], text);
  }

  async #target(path: string, parameters: URLSearchParams) {
    const access = await this.#currentAccess();
    const query = parameters.size === 0 ? "" : `?${parameters}`;
    return {
      url: `${access.url}${path}${query}`,
      headers: access.authorization === null ? {} : { authorization: access.authorization },
      dispatcher: this.#dispatcherFor(access),
    };
  }

  /** @throws when the credentials were never read and cannot be read now. */
  async #currentAccess(): Promise<Access> {
    const ageMs = performance.now() - this.#readAt;
    const isStale = this.#access === null || ageMs > this.#access.freshForMs || this.#isDoubted;
    if (isStale && ageMs > READ_PAUSE_MS)
      this.#reading ??= this.#read().finally(() => {
        this.#reading = null;
      });
    await this.#reading;
    if (this.#access === null) throw new Error("the credentials could not be read");
    return this.#access;
  }

  async #read(): Promise<void> {
    this.#readAt = performance.now();
    this.#isDoubted = false;
    const ended = new AbortController();
    try {
      // A plugin may hang, and every call waits for it.
      const late = sleep(this.#readTimeoutMs, undefined, { signal: ended.signal, ref: false }).then(() => {
        throw new Error("the credentials could not be read in time");
      });
      this.#access = await Promise.race([this.#load(), late]);
    } catch (error) {
      // While a file is being replaced, what was read before stays in use.
      if (this.#access === null) throw error;
      this.#isDoubted = true;
    } finally {
      ended.abort();
    }
  }

  /** One connection pool for as long as authority and client certificate stay the same. */
  #dispatcherFor({ url, proxy, tls }: Access): Dispatcher {
    const key = JSON.stringify([url, proxy, tls]);
    if (this.#dispatcher?.key === key) return this.#dispatcher.value;
    if (this.#closed) throw new Error("the client is closed");
    const old = this.#dispatcher?.value;
    const value =
      proxy === null
        ? new Agent({ connect: { ...tls, timeout: CONNECT_TIMEOUT_MS } })
        : new ProxyAgent({
            uri: proxy,
            requestTls: tls,
            connectTimeout: CONNECT_TIMEOUT_MS,
            // A proxy that takes connections and does not answer CONNECT would hold the calls of five minutes.
            clientFactory: (origin, options) =>
              new Pool(origin, { ...options, headersTimeout: CONNECT_TIMEOUT_MS }),
          });
    this.#dispatcher = { key, value };
    // Watches of the old one end and come back over the new one.
    if (old !== undefined)
      sleep(RETIRE_MS, undefined, { ref: false })
        .then(() => old.destroy())
        // Its connections are closed, or were before.
        .catch(() => undefined);
    return value;
  }
}

/** @throws AnswerTooLarge */
async function readBounded(body: AsyncIterable<Buffer>): Promise<string> {
  const whole = await readAtMost(body, MAX_ANSWER_BYTES);
  if (whole === null) throw new AnswerTooLarge();
  return whole.toString();
}

function failureOf(
  path: string,
  status: number,
  retryAfter: string | string[] | undefined,
  text: string,
): KubeError {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    json = {};
  }
  const failure = failureSchema.safeParse(json).data;
  const seconds = /^\d{1,6}$/.test(String(retryAfter)) ? Number(retryAfter) : 0;
  return new KubeError(
    status,
    failure?.reason ?? "Unknown",
    failure?.message ?? `${path}: status ${status}`,
    Math.min(LONGEST_RETRY_AFTER_MS, seconds * 1000),
  );
}

/**
 * Asks for permission when a request is about to be written: a process that was frozen while it waited for a
 * connection must not write after it was woken (rule 6.10).
 */
const permitted =
  (permit: () => void): Dispatcher.DispatcherComposeInterceptor =>
  (dispatch) =>
  (options, handler) =>
    dispatch(options, {
      onRequestStart: (controller, context) => {
        permit();
        handler.onRequestStart?.(controller, context);
      },
      onRequestUpgrade: (...args) => handler.onRequestUpgrade?.(...args),
      onResponseStart: (...args) => handler.onResponseStart?.(...args),
      onResponseData: (...args) => handler.onResponseData?.(...args),
      onResponseEnd: (...args) => handler.onResponseEnd?.(...args),
      onResponseError: (...args) => handler.onResponseError?.(...args),
    });

async function* jsonLines(body: AsyncIterable<Buffer>): AsyncGenerator {
  let pieces: Buffer[] = [];
  let size = 0;
  for await (const chunk of body) {
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      pieces.push(chunk.subarray(start, end));
      const line = Buffer.concat(pieces).toString();
      pieces = [];
      size = 0;
      start = end + 1;
      if (line !== "") yield JSON.parse(line) as unknown;
    }
    pieces.push(chunk.subarray(start));
    size += chunk.length - start;
    if (size > MAX_EVENT_BYTES) throw new Error("an event of the watch is too large");
  }
}
