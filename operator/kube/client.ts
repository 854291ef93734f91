/**
 * Calls to the API server. Of client-node only `KubeConfig` is used: it knows every way to find and authenticate to
 * a cluster. Its own calls open a connection for each request, and its informers end for good at the first reset
 * (client-node 2.0.1).
 */
import type { RequestOptions } from "node:https";
import { setTimeout as sleep } from "node:timers/promises";
import { createHash } from "node:crypto";
import { KubeConfig } from "@kubernetes/client-node";
import { Agent, type Dispatcher, ProxyAgent, request } from "undici";
import { z } from "zod";

const CALL_TIMEOUT_MS = 15_000;
const CONNECT_TIMEOUT_MS = 5000;
/** A page of 500 large objects fits. */
const MAX_ANSWER_BYTES = 512 * 1024 * 1024;
/** etcd takes objects of 1.5 MiB; JSON of a watch event may escape every byte of one. */
const MAX_EVENT_BYTES = 16 * 1024 * 1024;
/** Certificates are renewed, so more than one dispatcher may be alive; the last one counts. */
const RETIRE_MS = 60_000;
/** Refused credentials are read anew, but not at each of many refusals. */
const RELOAD_MS = 1000;
/** Longer than the API server asks for when it is well. */
const LONGEST_RETRY_AFTER_MS = 30_000;

export type Verb = "GET" | "POST" | "PUT" | "PATCH";

export interface Call {
  readonly method: Verb;
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  /** Of a PATCH. */
  readonly patch?: "apply" | "merge";
  readonly accept?: string;
  readonly signal?: AbortSignal;
  /** Asked when the request is written to its connection, however long it waited for one; its error is the call's. */
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

/** How long the API server wants to be left alone after this failure, in milliseconds. */
export const retryAfterMs = (error: unknown): number => (error instanceof KubeError ? error.retryAfterMs : 0);

export const isStatus = (error: unknown, ...statuses: readonly number[]): boolean =>
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
export const FIELD_MANAGER = "gapura-operator";

export class KubeApi {
  readonly #load: () => KubeConfig;
  readonly #count: (method: string, status: number) => void;
  #config: KubeConfig;
  /** Monotonic milliseconds. */
  #loadedAt = performance.now();
  #dispatcher: { readonly key: string; readonly value: Dispatcher } | null = null;
  #closed = false;

  /**
   * `load` reads the configuration, again when the server refuses our credentials: they may have been replaced.
   * `count` is told of each answer; a status of 0 is none.
   */
  constructor(load: () => KubeConfig, count: (method: string, status: number) => void = () => {}) {
    this.#load = load;
    this.#config = load();
    this.#count = count;
  }

  /** From a kubeconfig file, or, without one, the pod's own account. */
  static configOf(kubeconfig: string | undefined): KubeConfig {
    const config = new KubeConfig();
    if (kubeconfig === undefined || kubeconfig === "") config.loadFromCluster();
    else config.loadFromFile(kubeconfig);
    return config;
  }

  /** @throws KubeError; another error when the server does not answer. */
  async call(call: Call): Promise<unknown> {
    const { method, path, query = {}, body, patch } = call;
    const timeout = AbortSignal.timeout(CALL_TIMEOUT_MS);
    const signal = call.signal === undefined ? timeout : AbortSignal.any([call.signal, timeout]);
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
      return this.#parse(answer, await readBounded(answer.body));
    } catch (error) {
      if (!(error instanceof KubeError)) this.#count(method, 0);
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
    });
    this.#count("WATCH", answer.statusCode);
    if (answer.statusCode !== 200) this.#parse(answer, await readBounded(answer.body));
    yield* jsonLines(answer.body);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#dispatcher?.value.destroy();
  }

  #parse({ statusCode, headers }: Dispatcher.ResponseData, text: string): unknown {
    if (statusCode >= 200 && statusCode < 300) return JSON.parse(text) as unknown;
    if (statusCode === 401) this.#reload();
    throw failureOf(statusCode, headers["retry-after"], text);
  }

  /** Of a file that is being replaced the old content counts on. */
  #reload(): void {
    const now = performance.now();
    if (now - this.#loadedAt < RELOAD_MS) return;
    this.#loadedAt = now;
    try {
      this.#config = this.#load();
    } catch {
      // The refusal itself is reported; the next one reads again.
    }
  }

  async #target(path: string, parameters: URLSearchParams) {
    const cluster = this.#config.getCurrentCluster();
    if (cluster === null) throw new Error("the kubeconfig has no current cluster");
    const options: RequestOptions = {};
    // Reads tokens and certificates anew where they are files: they are renewed while we run.
    await this.#config.applyToHTTPSOptions(options);
    const headers: Record<string, string> = {};
    for (const [name, value] of Object.entries(options.headers ?? {}))
      if (value !== undefined) headers[name] = String(value);
    if (typeof options.auth === "string")
      headers["authorization"] = `Basic ${Buffer.from(options.auth).toString("base64")}`;
    const query = parameters.size === 0 ? "" : `?${parameters}`;
    return {
      url: `${cluster.server.replace(/\/$/, "")}${path}${query}`,
      headers,
      dispatcher: this.#dispatcherFor(options),
    };
  }

  /** One connection pool for as long as authority and client certificate stay the same. */
  #dispatcherFor({
    ca,
    cert,
    key,
    pfx,
    passphrase,
    rejectUnauthorized,
    servername,
  }: RequestOptions): Dispatcher {
    const cluster = this.#config.getCurrentCluster();
    const tls = { ca, cert, key, pfx, passphrase, rejectUnauthorized, servername };
    const digest = createHash("sha256")
      .update(JSON.stringify([cluster?.server, cluster?.proxyUrl, tls]))
      .digest("hex");
    if (this.#dispatcher?.key === digest) return this.#dispatcher.value;
    if (this.#closed) throw new Error("the client is closed");
    const old = this.#dispatcher?.value;
    const value = makeDispatcher(cluster?.proxyUrl, tls);
    this.#dispatcher = { key: digest, value };
    // Watches of the old one end and come back over the new one.
    if (old !== undefined) void sleep(RETIRE_MS, undefined, { ref: false }).then(() => old.destroy());
    return value;
  }
}

function makeDispatcher(proxy: string | undefined, tls: RequestOptions): Dispatcher {
  const given = Object.fromEntries(Object.entries(tls).filter(([, value]) => value !== undefined));
  if (proxy === undefined) return new Agent({ connect: { ...given, timeout: CONNECT_TIMEOUT_MS } });
  if (!/^https?:/.test(proxy))
    throw new Error("proxy-url in the kubeconfig: only http and https are supported");
  return new ProxyAgent({ uri: proxy, requestTls: given });
}

async function readBounded(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.length;
    if (size > MAX_ANSWER_BYTES) throw new Error("the API server's answer is too large");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

function failureOf(status: number, retryAfter: string | string[] | undefined, text: string): KubeError {
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
    failure?.message ?? `status ${status}`,
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
