/**
 * A scripted upstream for the three dialects over HTTP: in this process, or as a child (`main.ts`). Every request
 * is logged with its exact bytes. What to answer is chosen in this order: the queue (`next`), the rule for the
 * request's model (`model`), a replay folder, the `fallback`; last of all the demo model.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Dialect } from "../../../dataplane/dialects/dialect.ts";
import { play } from "./play.ts";
import { readRequest } from "./read-request.ts";
import { renderError } from "./render.ts";
import { RequestLog, type LoggedRequest } from "./request-log.ts";
import type { Faults, Step } from "./script.ts";
import { StepChoice, type ChoiceOptions, type Script } from "./step-choice.ts";

export interface UpstreamOptions extends ChoiceOptions {
  readonly port?: number;
  readonly host?: string;
  /** Time between streamed events where a script does not say; the demo streams words at a readable pace. */
  readonly paceMs?: number;
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

/** Starts one, on a free port of loopback unless told otherwise. */
export async function startUpstream(options: UpstreamOptions = {}): Promise<FakeUpstream> {
  const log = new RequestLog();
  const choice = new StepChoice(options);
  const sockets = new Set<Socket>();
  let totalConnections = 0;

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
    log.reset();
    choice.reset();
  };
  const stopListening = () =>
    new Promise<void>((done) => {
      server.close(() => done());
      for (const socket of sockets) socket.destroy();
    });

  return {
    url: `http://127.0.0.1:${port}`,
    port,
    requests: log.requests,
    next: (...steps) => choice.next(steps),
    model: (name, script) => choice.model(name, script),
    reset,
    arrived: (wanted, withinMs) => log.arrived(wanted, withinMs),
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
    const logged = log.add(request, body, response);
    const { pathname } = new URL(path, "http://fake");
    if (pathname.endsWith("/count_tokens") && choice.queued === 0) {
      return json(response, 200, {
        input_tokens: readRequest("messages", logged.text).inputTokens,
      });
    }
    const dialect = dialectOf(pathname);
    if (dialect === null || request.method !== "POST") {
      return json(response, 404, renderError("chat", { status: 404, message: "no such path" }, log.serial));
    }
    const read = readRequest(dialect, logged.text);
    const step = await choice.choose(read, logged);
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
        log.requests.map(({ json: _json, body: bytes, ...rest }) => ({
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
      choice.next(parsed.steps ?? []);
      return json(response, 200, {});
    }
    if (route === "POST /_fake/model" && parsed.model !== undefined) {
      choice.model(parsed.model, parsed.steps ?? []);
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
