/** Writes one scripted step to a response, with all that is to go wrong. */
import type { ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { errorEvent, frame, renderError, renderEvents, renderWhole } from "./render.ts";
import type { Answer, Faults, RenderContext, Step, WireEvent } from "./script.ts";

export interface Stage {
  readonly paceMs: number;
  readonly headers: Readonly<Record<string, string>>;
  /** The request asked for a stream. */
  readonly stream: boolean;
  /** The caller accepts gzip: then whole answers are compressed, as providers do. */
  readonly gzip: boolean;
  readonly context: RenderContext;
}

const PAGE =
  "<!doctype html><html><head><title>502 Bad Gateway</title></head><body>proxy at 10.0.0.7</body></html>";

export async function play(step: Step, response: ServerResponse, stage: Stage): Promise<void> {
  const faults = step.faults ?? {};
  if (faults.hang === true) return;
  if (faults.reset === true) return reset(response);
  if (faults.delayHeadersMs !== undefined) await pause(response, faults.delayHeadersMs);
  const headers = { ...stage.headers, ...step.headers };
  if (faults.html === true)
    return writeWhole(response, 200, { ...headers, "content-type": "text/html" }, PAGE, faults);
  if ("error" in step) {
    const body = JSON.stringify(renderError(stage.context.dialect, step.error, stage.context.serial));
    return writeWhole(
      response,
      step.error.status,
      { "content-type": "application/json", ...headers },
      body,
      faults,
    );
  }
  if ("raw" in step) {
    const type = step.raw.contentType ?? (stage.stream ? "text/event-stream" : "application/json");
    return writeWhole(
      response,
      step.raw.status ?? 200,
      { "content-type": type, ...headers },
      step.raw.body,
      faults,
    );
  }
  if (stage.stream) return writeStream(response, headers, step.answer, stage, faults);
  const whole = JSON.stringify(renderWhole(huge(step.answer, faults), stage.context));
  const body = faults.malformed === true ? whole.slice(0, Math.floor(whole.length * 0.6)) : whole;
  return writeWhole(
    response,
    200,
    { "content-type": "application/json", ...headers },
    body,
    faults,
    stage.gzip,
  );
}

async function writeWhole(
  response: ServerResponse,
  status: number,
  headers: Readonly<Record<string, string>>,
  sent: string | Uint8Array,
  faults: Faults,
  gzip = false,
): Promise<void> {
  const plain = Buffer.from(faults.empty === true ? "" : sent);
  const body = gzip && plain.length > 0 ? gzipSync(plain) : plain;
  response.writeHead(status, {
    ...headers,
    ...(gzip && plain.length > 0 ? { "content-encoding": "gzip" } : {}),
    // A length would tell the reader of a cut; the end of chunks does, too.
    ...(hasCut(faults) ? {} : { "content-length": String(body.length) }),
  });
  const writer = new FaultyWriter(response, faults);
  response.flushHeaders();
  if (faults.delayFirstByteMs !== undefined) await pause(response, faults.delayFirstByteMs);
  if (await writer.write(body)) response.end();
}

async function writeStream(
  response: ServerResponse,
  headers: Readonly<Record<string, string>>,
  answer: Answer,
  { context, paceMs }: Stage,
  faults: Faults,
): Promise<void> {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache", ...headers });
  response.flushHeaders();
  if (faults.delayFirstByteMs !== undefined) await pause(response, faults.delayFirstByteMs);
  if (faults.empty === true) return void response.end();
  const events = renderEvents(huge(answer, faults), context).filter((event) => !isLeftOut(event, faults));
  const writer = new FaultyWriter(response, faults);
  if (faults.atOnce === true) {
    if (await writer.write(Buffer.from(events.map(frame).join("")))) response.end();
    return;
  }
  const pace = faults.delayBetweenEventsMs ?? paceMs;
  for (const [index, event] of events.entries()) {
    if (response.destroyed) return;
    if (faults.stallAtEvent === index) return;
    if (faults.cutAtEvent === index) return cut(response);
    if (faults.delayAtEvent?.event === index) await pause(response, faults.delayAtEvent.ms);
    if (faults.errorAtEvent?.event === index) {
      response.end(frame(errorEvent(context.dialect, faults.errorAtEvent, index)));
      return;
    }
    if (index > 0 && pace > 0) await pause(response, pace);
    const written = faults.malformedAtEvent === index ? { ...event, data: event.data.slice(0, -3) } : event;
    if (!(await writer.write(Buffer.from(frame(written))))) return;
  }
  response.end();
}

function isLeftOut(event: WireEvent, faults: Faults): boolean {
  if (faults.noTerminal === true && event.terminal === true) return true;
  return faults.noDone === true && event.data === "[DONE]";
}

/** Writes bytes until one of the byte faults strikes. */
class FaultyWriter {
  readonly #response: ServerResponse;
  readonly #faults: Faults;
  #written = 0;

  constructor(response: ServerResponse, faults: Faults) {
    this.#response = response;
    this.#faults = faults;
  }

  /** False: nothing more may be written. */
  async write(bytes: Buffer): Promise<boolean> {
    const { stallAtByte, cutAtByte, resetAtByte, chunkBytes } = this.#faults;
    const limit = Math.min(stallAtByte ?? Infinity, cutAtByte ?? Infinity, resetAtByte ?? Infinity);
    const allowed = bytes.subarray(0, Math.max(0, Math.min(bytes.length, limit - this.#written)));
    for (let at = 0; at < allowed.length; at += chunkBytes ?? allowed.length) {
      const piece = allowed.subarray(at, at + (chunkBytes ?? allowed.length));
      if (this.#response.destroyed) return false;
      if (!this.#response.write(piece)) await drained(this.#response);
      // Each piece shall travel in a segment of its own.
      if (chunkBytes !== undefined) await new Promise((done) => setImmediate(done));
    }
    this.#written += allowed.length;
    if (allowed.length === bytes.length && this.#written < limit) return true;
    if (limit === cutAtByte) cut(this.#response);
    else if (limit === resetAtByte) reset(this.#response);
    return false;
  }
}

function hasCut({ cutAtByte, resetAtByte, stallAtByte }: Faults): boolean {
  return cutAtByte !== undefined || resetAtByte !== undefined || stallAtByte !== undefined;
}

/** Closes the connection after what was written, without the end of the body. */
function cut(response: ServerResponse): void {
  const { socket } = response;
  if (socket === null) return void response.destroy();
  // `end` on the socket, not on the response: the last chunk is missing.
  socket.end();
}

function reset(response: ServerResponse): void {
  response.socket?.resetAndDestroy();
}

async function drained(response: ServerResponse): Promise<void> {
  await new Promise<void>((done) => {
    const over = () => {
      response.off("drain", over);
      response.off("close", over);
      done();
    };
    response.on("drain", over);
    response.on("close", over);
  });
}

/** Waits, but not for a caller who is gone. */
async function pause(response: ServerResponse, ms: number): Promise<void> {
  const gone = new AbortController();
  const abort = () => gone.abort();
  response.once("close", abort);
  await sleep(ms, undefined, { signal: gone.signal }).catch(() => {});
  response.off("close", abort);
}

function huge(answer: Answer, { hugeBytes }: Faults): Answer {
  if (hugeBytes === undefined) return answer;
  return {
    ...answer,
    deltaChars: hugeBytes,
    parts: [{ type: "text", text: "x".repeat(hugeBytes) }, ...answer.parts],
  };
}
