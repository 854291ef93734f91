/**
 * A scripted upstream for the three dialects over HTTP: in this process, or as a child (`main.ts`). Every request
 * is logged with its exact bytes. What to answer is chosen in this order: the queue (`next`), the rule for the
 * request's model (`model`), a replay folder, the `fallback`; last of all the demo model.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Dialect } from "../../../dataplane/dialects/dialect.ts";
import { demoStep } from "./demo.ts";
import { play } from "./play.ts";
import { readRequest, type ReadRequest } from "./read-request.ts";
import { renderError } from "./render.ts";
import type { Replay } from "./replay.ts";
import type { Faults, Step } from "./script.ts";

/** The log keeps the newest this many requests and bytes. */
const MAX_LOGGED_REQUESTS = 20_000;
const MAX_LOGGED_BYTES = 256 * 1024 * 1024;

export interface LoggedRequest {
  /** From 1, in order of arrival. */
  readonly serial: number;
  /** Unix milliseconds. */
  readonly at: number;
  readonly method: string;
  /** With the query. */
  readonly path: string;
  /** Names in lower case; repeated ones joined by a comma. */
  readonly headers: Readonly<Record<string, string>>;
  /** Name, value, name, value … as they came. */
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
  readonly text: string;
  /** @throws SyntaxError when the body is not JSON. */
  readonly json: () => unknown;
  /** How it ended, once it did: the whole answer was written, or the caller went away. */
  outcome: "running" | "answered" | "aborted";
}

export type Script =
  | Step
  | readonly Step[]
  | ((request: ReadRequest, logged: LoggedRequest) => Step | Promise<Step>);

export interface UpstreamOptions {
  readonly port?: number;
  readonly host?: string;
  /** Time between streamed events where a script does not say; the demo streams words at a readable pace. */
  readonly paceMs?: number;
  /** Answers what no script answers; default: the demo model. */
  readonly fallback?: (request: ReadRequest, logged: LoggedRequest) => Step;
  readonly replay?: Replay;
  /** Answers other paths; false: not one of its own. Such requests are not logged. */
  readonly elsewhere?: (request: IncomingMessage, response: ServerResponse) => boolean;
  /** Stands before the number in every id, so that ids of two runs differ; default: nothing. */
  readonly idPrefix?: string;
  /** Unix seconds in answers; default: a fixed moment, so that golden files stay put. */
  readonly createdAt?: number;
}

export interface FakeUpstream {
  /** `http://127.0.0.1:PORT`, ready for `baseURL`. */
  readonly url: string;
  readonly port: number;
  /** Oldest first. */
  readonly requests: LoggedRequest[];
  /** Answers for the next requests, whatever they are; each is used once. */
  next(...steps: Step[]): void;
  /**
   * Answers for every request with this model name: one step for all, steps in turn (the last one repeats), or a
   * function, which may let a request wait.
   */
  model(name: string, script: Script): void;
  /** Forgets scripts and log. */
  reset(): void;
  /** Resolves with the log's entry `serial` (from 1) once it has arrived. */
  arrived(serial: number, withinMs?: number): Promise<LoggedRequest>;
  /** Open TCP connections now, and all that ever were. */
  connections(): { readonly open: number; readonly total: number };
  /** Refuses connections (the port stays ours in name only), until `resume`. */
  pause(): Promise<void>;
  resume(): Promise<void>;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Headers of a provider's account, which no client may ever see. */
const ACCOUNT_HEADERS = {
  "set-cookie": "session=provider-secret",
  "anthropic-organization-id": "provider-org-secret",
  "openai-organization": "provider-org-secret",
  "anthropic-ratelimit-requests-remaining": "41",
  "x-ratelimit-remaining-requests": "41",
};

export async function startUpstream(options: UpstreamOptions = {}): Promise<FakeUpstream> {
  const requests: LoggedRequest[] = [];
  const queue: Step[] = [];
  const byModel = new Map<string, Script>();
  const turns = new Map<string, number>();
  const sockets = new Set<Socket>();
  const waiting = new Set<() => void>();
  let serial = 0;
  let totalConnections = 0;
  let loggedBytes = 0;

  const server = createServer({ keepAliveTimeout: 60_000, requestTimeout: 0, maxHeaderSize: 65_536 });
  server.on("connection", (socket) => {
    totalConnections += 1;
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
  });
  server.on("request", (request, response) => {
    answer(request, response).catch((error: unknown) => {
      response.destroy(error instanceof Error ? error : new Error(String(error)));
    });
  });
  const listen = (port: number) =>
    new Promise<void>((done, fail) => {
      server.once("error", fail);
      server.listen(port, options.host ?? "127.0.0.1", () => {
        server.off("error", fail);
        done();
      });
    });
  await listen(options.port ?? 0);
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no TCP port");
  const { port } = address;

  const reset = () => {
    requests.length = 0;
    loggedBytes = 0;
    serial = 0;
    queue.length = 0;
    byModel.clear();
    turns.clear();
  };
  const stopListening = () =>
    new Promise<void>((done) => {
      server.close(() => done());
      for (const socket of sockets) socket.destroy();
    });

  return {
    url: `http://127.0.0.1:${port}`,
    port,
    requests,
    next: (...steps) => void queue.push(...steps),
    model: (name, script) => {
      byModel.set(name, script);
      turns.delete(name);
    },
    reset,
    arrived: async (wanted, withinMs = 15_000) => {
      const deadline = Date.now() + withinMs;
      for (;;) {
        const found = requests.find((entry) => entry.serial === wanted);
        if (found !== undefined) return found;
        const left = deadline - Date.now();
        if (left <= 0) throw new Error(`request ${wanted} did not arrive within ${withinMs} ms`);
        await new Promise<void>((done) => {
          const wake = () => {
            clearTimeout(timer);
            waiting.delete(wake);
            done();
          };
          const timer = setTimeout(wake, left);
          waiting.add(wake);
        });
      }
    },
    connections: () => ({ open: sockets.size, total: totalConnections }),
    pause: stopListening,
    resume: () => listen(port),
    close: stopListening,
    [Symbol.asyncDispose]: stopListening,
  };

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (options.elsewhere?.(request, response) === true) return;
    const body = await readBody(request);
    const path = request.url ?? "/";
    if (path.startsWith("/_fake/")) return control(request, response, body);
    const logged = log(request, path, body, response);
    const { pathname } = new URL(path, "http://fake");
    if (pathname.endsWith("/count_tokens") && queue.length === 0) {
      return json(response, 200, {
        input_tokens: readRequest("messages", logged.text).inputTokens,
      });
    }
    const dialect = dialectOf(pathname);
    if (dialect === null || request.method !== "POST") {
      return json(response, 404, renderError("chat", { status: 404, message: "no such path" }, serial));
    }
    const read = readRequest(dialect, logged.text);
    const step = await choose(read, logged);
    await play(step, response, {
      paceMs: options.paceMs ?? 0,
      headers: { ...ACCOUNT_HEADERS, "request-id": `req_fake${logged.serial}` },
      stream: read.stream,
      gzip: /\bgzip\b/.test(logged.headers["accept-encoding"] ?? ""),
      context: {
        dialect,
        model: read.model,
        serial: `${options.idPrefix ?? ""}${logged.serial}`,
        createdAt: options.createdAt ?? 1_795_000_000,
        includeUsage: read.includeUsage,
        includeReasoning: read.includeReasoning,
        textFormat: read.textFormat,
        choices: read.choices,
        inputTokens: read.inputTokens,
        noUsage: step.faults?.noUsage === true,
      },
    });
  }

  function choose(read: ReadRequest, logged: LoggedRequest): Step | Promise<Step> {
    const queued = queue.shift();
    if (queued !== undefined) return queued;
    const script = byModel.get(read.model);
    if (typeof script === "function") return script(read, logged);
    if (Array.isArray(script)) {
      const turn = turns.get(read.model) ?? 0;
      turns.set(read.model, turn + 1);
      const step = (script as readonly Step[])[Math.min(turn, script.length - 1)];
      if (step !== undefined) return step;
    } else if (script !== undefined) {
      return script as Step;
    }
    const replayed = options.replay?.find(logged);
    if (replayed !== undefined) return replayed;
    return (options.fallback ?? demoStep)(read, logged);
  }

  function log(
    request: IncomingMessage,
    path: string,
    body: Buffer,
    response: ServerResponse,
  ): LoggedRequest {
    const text = body.toString("utf8");
    const entry: LoggedRequest = {
      serial: (serial += 1),
      at: Date.now(),
      method: request.method ?? "",
      path,
      headers: Object.fromEntries(
        Object.entries(request.headers).map(([name, value]) => [
          name,
          Array.isArray(value) ? value.join(", ") : (value ?? ""),
        ]),
      ),
      rawHeaders: request.rawHeaders,
      body,
      text,
      json: () => JSON.parse(text) as unknown,
      outcome: "running",
    };
    response.on("finish", () => (entry.outcome = "answered"));
    response.on("close", () => {
      if (entry.outcome === "running") entry.outcome = "aborted";
    });
    requests.push(entry);
    loggedBytes += body.length;
    while (requests.length > 1 && (requests.length > MAX_LOGGED_REQUESTS || loggedBytes > MAX_LOGGED_BYTES)) {
      loggedBytes -= requests.shift()?.body.length ?? 0;
    }
    for (const wake of waiting) wake();
    return entry;
  }

  /**
   * The same over HTTP, for a server in another process: `GET /_fake/requests` (bodies in base64),
   * `GET /_fake/connections`, `POST /_fake/next {steps}`, `POST /_fake/model {model, steps}`, `POST /_fake/reset`.
   */
  function control(request: IncomingMessage, response: ServerResponse, body: Buffer): void {
    const route = `${request.method} ${request.url}`;
    if (route === "GET /_fake/requests") {
      return json(
        response,
        200,
        requests.map(({ json: _json, body: bytes, ...rest }) => ({
          ...rest,
          body: bytes.toString("base64"),
        })),
      );
    }
    if (route === "GET /_fake/connections") {
      return json(response, 200, { open: sockets.size, total: totalConnections });
    }
    if (route === "POST /_fake/reset") {
      reset();
      return json(response, 200, {});
    }
    const parsed = JSON.parse(body.toString("utf8")) as { steps?: Step[]; model?: string };
    if (route === "POST /_fake/next") {
      queue.push(...(parsed.steps ?? []));
      return json(response, 200, {});
    }
    if (route === "POST /_fake/model" && parsed.model !== undefined) {
      byModel.set(parsed.model, parsed.steps ?? []);
      turns.delete(parsed.model);
      return json(response, 200, {});
    }
    return json(response, 404, {});
  }
}

function dialectOf(pathname: string): Dialect | null {
  if (pathname.endsWith("/chat/completions")) return "chat";
  if (pathname.endsWith("/responses")) return "responses";
  return pathname.endsWith("/messages") ? "messages" : null;
}

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function json(response: ServerResponse, status: number, value: unknown): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(value));
}

/** Shorthand: a step with faults. */
export function withFaults(step: Step, faults: Faults): Step {
  return { ...step, faults: { ...step.faults, ...faults } };
}
