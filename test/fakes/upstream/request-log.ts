/** The requests that a scripted upstream got, with their exact bytes. */
import type { IncomingMessage, ServerResponse } from "node:http";

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

export class RequestLog {
  /** Oldest first. */
  readonly requests: LoggedRequest[] = [];
  /** Of the newest request; 0: there was none. */
  serial = 0;
  #bytes = 0;
  readonly #waiting = new Set<() => void>();

  add(request: IncomingMessage, body: Buffer, response: ServerResponse): LoggedRequest {
    const text = body.toString("utf8");
    const entry: LoggedRequest = {
      serial: (this.serial += 1),
      at: Date.now(),
      method: request.method ?? "",
      path: request.url ?? "/",
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
    this.requests.push(entry);
    this.#bytes += body.length;
    while (
      this.requests.length > 1 &&
      (this.requests.length > MAX_LOGGED_REQUESTS || this.#bytes > MAX_LOGGED_BYTES)
    ) {
      this.#bytes -= this.requests.shift()?.body.length ?? 0;
    }
    for (const wake of this.#waiting) wake();
    return entry;
  }

  /** Resolves with the entry `wanted` (from 1) once it has arrived. @throws Error when it does not in time */
  async arrived(wanted: number, withinMs = 15_000): Promise<LoggedRequest> {
    const deadline = Date.now() + withinMs;
    for (;;) {
      const found = this.requests.find((entry) => entry.serial === wanted);
      if (found !== undefined) return found;
      const left = deadline - Date.now();
      if (left <= 0) throw new Error(`request ${wanted} did not arrive within ${withinMs} ms`);
      await new Promise<void>((done) => {
        const wake = () => {
          clearTimeout(timer);
          this.#waiting.delete(wake);
          done();
        };
        const timer = setTimeout(wake, left);
        this.#waiting.add(wake);
      });
    }
  }

  reset(): void {
    this.requests.length = 0;
    this.#bytes = 0;
    this.serial = 0;
  }
}
