/**
 * A small gateway that breaks none of the rules, before the scripted upstream: each test lets it break one. What it does
 * is written from the vendors' reference, without any code of the product.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { dialectPath, dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { fieldsOf, json, type Fields } from "../grammar/sse.ts";
import { framesIn } from "./frames.ts";

export const KEY = "sk-reference";
export const ADMIN_KEY = "sk-reference-admin";
export const MODEL = "reference-1";

/** What one answer is, before it leaves. */
export interface Draft {
  readonly dialect: Dialect | null;
  readonly asked: {
    /** With its query. */
    readonly url: string;
    readonly path: string;
    readonly method: string;
    readonly headers: IncomingMessage["headers"];
    readonly body: Fields;
    readonly text: string;
  };
  status: number;
  headers: Record<string, string>;
  body: string | Buffer;
}

/** Breaks a rule: changes the draft of an answer. */
export type Break = (draft: Draft) => void | Promise<void>;

export interface Reference extends AsyncDisposable {
  readonly url: string;
  break: Break | null;
  /** Streams are passed on as they come only where nothing is broken; true: gathered to their end as well. */
  gather: boolean;
  /** A client's end ends the request to the upstream. */
  cancels: boolean;
}

export async function startReference(upstreamUrl: string): Promise<Reference> {
  let serial = 0;
  // Longer than a busy client leaves a connection idle.
  const server = createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
    void answer(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const address = server.address();
  const reference: Reference = {
    url: `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`,
    break: null,
    gather: false,
    cancels: true,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
  return reference;

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    const bytes = Buffer.concat(pieces);
    const path = request.url?.split("?")[0] ?? "";
    const dialect = dialects.find((name) => dialectPath[name] === path) ?? null;
    const text = bytes.toString();
    const { url = "", method = "", headers } = request;
    const asked = { url, path, method, headers, body: fieldsOf(json(text)), text };
    const id = `req_reference${(serial += 1)}`;
    const draft: Draft = {
      dialect,
      asked,
      status: 200,
      headers: { "request-id": id, "x-request-id": id, "content-type": "application/json" },
      body: "",
    };
    const isMessages = dialect === "messages" || "anthropic-version" in request.headers;
    const refuse = (status: number, message: string, code: string | null = null) => {
      draft.status = status;
      draft.headers["x-should-retry"] = "false";
      draft.body = JSON.stringify(
        isMessages ? messagesError(status, message, id) : openaiError(message, code),
      );
    };
    const wrong = refusal(dialect, bytes, asked);
    if (wrong !== null) refuse(...wrong);
    else if (dialect === null) draft.body = JSON.stringify(elsewhere(path, isMessages));
    else if (asked.body["stream"] === true && reference.break === null && !reference.gather)
      return relay(response, bytes, draft);
    else await whole(dialect, draft, refuse);
    await reference.break?.(draft);
    response.writeHead(draft.status, draft.headers);
    response.end(draft.body);
  }

  function ask(path: string, body: string | Buffer<ArrayBuffer>, signal?: AbortSignal) {
    return fetch(upstreamUrl + path, { method: "POST", body, ...(signal === undefined ? {} : { signal }) });
  }

  /** The upstream's answer to its end. */
  async function whole(
    dialect: Dialect,
    draft: Draft,
    refuse: (status: number, message: string) => void,
  ): Promise<void> {
    const upstream = await ask(dialectPath[dialect], draft.asked.text);
    if (upstream.status >= 400) return refuse(502, "the upstream failed");
    if (draft.asked.body["stream"] === true) Object.assign(draft.headers, streamHeaders);
    draft.body = await bodyOf(upstream, dialect);
  }

  async function relay(response: ServerResponse, bytes: Buffer<ArrayBuffer>, draft: Draft): Promise<void> {
    const leaving = new AbortController();
    response.once("close", () => reference.cancels && leaving.abort());
    const upstream = await ask(draft.asked.path, bytes, leaving.signal);
    response.writeHead(200, { ...draft.headers, ...streamHeaders });
    try {
      for await (const piece of upstream.body ?? [])
        if (!response.write(piece))
          await Promise.race([new Promise((done) => response.once("drain", done)), sleep(5_000)]);
    } catch {
      response.write(errorEvent(draft.dialect ?? "chat"));
    }
    response.end();
  }
}

const streamHeaders = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache",
  "x-accel-buffering": "no",
};

async function bodyOf(upstream: Response, dialect: Dialect): Promise<string> {
  let text = "";
  const decoder = new TextDecoder();
  try {
    for await (const piece of upstream.body ?? []) text += decoder.decode(piece, { stream: true });
    return text;
  } catch {
    return text + errorEvent(dialect);
  }
}

function refusal(
  dialect: Dialect | null,
  bytes: Buffer,
  { path, method, headers, body, text }: Draft["asked"],
): [number, string, (string | null)?] | null {
  const given = headers["x-api-key"] ?? headers.authorization?.replace(/^Bearer /, "");
  const wanted = path.startsWith("/v1/organization") ? ADMIN_KEY : KEY;
  if (given !== wanted) return [401, "invalid key", "invalid_api_key"];
  if (dialect === null)
    return path.startsWith("/v1/models/") && !path.endsWith(MODEL)
      ? [404, "no such model", "model_not_found"]
      : null;
  if (method !== "POST") return [405, "POST only"];
  if (json(text) === undefined || !Buffer.from(text).equals(bytes)) return [400, "not JSON in UTF-8"];
  const required = dialect === "responses" ? "input" : "messages";
  if (!Array.isArray(body[required])) return [400, `${required}: a list is required`, "invalid_type"];
  for (const name of ["max_tokens", "max_completion_tokens", "max_output_tokens"])
    if (name in body && !(Number(body[name]) > 0)) return [400, `${name}: at least 1`, "invalid_value"];
  return body["model"] === MODEL ? null : [404, `model: ${String(body["model"])}`, "model_not_found"];
}

const errorTypes: Readonly<Record<number, string>> = {
  401: "authentication_error",
  404: "not_found_error",
  502: "api_error",
};

const messagesError = (status: number, message: string, id: string): object => ({
  type: "error",
  error: { type: errorTypes[status] ?? "invalid_request_error", message },
  request_id: id,
});
const openaiError = (message: string, code: string | null): object => ({
  error: { message, type: "invalid_request_error", param: null, code },
});

function errorEvent(dialect: Dialect): string {
  const error = { type: "api_error", message: "the upstream broke off", param: null, code: null };
  if (dialect === "chat") return `data: ${JSON.stringify({ error })}\n\n`;
  const data = { ...error, type: "error", sequence_number: 0, error };
  return `event: error\ndata: ${JSON.stringify(data)}\n\n`;
}

function elsewhere(path: string, isMessages: boolean): object {
  if (path === "/v1/organizations/me") return { id: "org_1", type: "organization", name: "Reference" };
  if (path === "/v1/organization/projects") return { object: "list", data: [] };
  const model = isMessages
    ? messagesModel
    : { id: MODEL, object: "model", created: 1, owned_by: "reference", shutdown_date: null };
  if (path !== "/v1/models") return model;
  return { object: "list", data: [model], first_id: MODEL, last_id: MODEL, has_more: false };
}

const messagesModel = {
  type: "model",
  id: MODEL,
  display_name: "Reference",
  created_at: "2026-01-01T00:00:00Z",
  lifecycle: "active",
  line: null,
  deprecated_at: null,
  retires_at: null,
  max_input_tokens: 100_000,
  max_tokens: 8_000,
  capabilities: null,
};

/** The events of a draft's stream, changed one by one; null leaves one out. */
export function changeEvents(draft: Draft, change: (data: Fields, index: number) => Fields | null): void {
  const { frames } = framesIn(draft.body.toString());
  draft.body = frames
    .map(({ event, data }, index) => {
      const changed = data === "[DONE]" ? data : change(fieldsOf(json(data)), index);
      if (changed === null) return "";
      const text = typeof changed === "string" ? changed : JSON.stringify(changed);
      return `${event === "" ? "" : `event: ${event}\n`}data: ${text}\n\n`;
    })
    .join("");
}

export function changeBody(draft: Draft, change: (body: Fields) => Fields): void {
  draft.body = JSON.stringify(change(fieldsOf(json(draft.body.toString()))));
}
