/** The load generator: raw sockets, prebuilt requests, and just enough reading to know where an answer ends. */
import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

export interface LoadOptions {
  readonly port: number;
  readonly request: Buffer;
  /** With these each connection sends one of all, in turns. */
  readonly others?: readonly Buffer[];
  /** Connections, each with one request at a time. */
  readonly width: number;
  /** No new request is sent after this time; the running ones end. */
  readonly ms: number;
}

export interface LoadResult {
  readonly requests: number;
  readonly ms: number;
  /** Milliseconds from the request's write to the first byte of the answer, and to its end. */
  readonly firstByteMs: readonly number[];
  readonly wholeMs: readonly number[];
  /** Answers that said 503, as Gapura does when the machine gives it no time; they are in no other figure. */
  readonly shed: number;
}

/** One answer. */
interface Answer {
  readonly firstByteMs: number;
  readonly wholeMs: number;
  readonly shed: boolean;
}

/** An answer that takes longer than this is a fault. */
const ANSWER_TIMEOUT_MS = 20_000;
/** How long a connection that was told to come back later stays away. */
const SHED_PAUSE_MS = 500;
/** The end of the last HTTP chunk of a stream and the empty one behind it. */
const STREAM_END = Buffer.from("\r\n0\r\n\r\n");

/** @throws Error at the first answer that is neither 200 nor 503, or is cut. */
export async function load({ port, request, others = [], width, ms }: LoadOptions): Promise<LoadResult> {
  const firstByteMs: number[] = [];
  const wholeMs: number[] = [];
  let shed = 0;
  const clients = await Promise.all(Array.from({ length: width }, () => Client.open(port)));
  const started = performance.now();
  const until = started + ms;
  try {
    await Promise.all(
      clients.map(async (client, n) => {
        const own = [request, ...others][n % (others.length + 1)] ?? request;
        while (performance.now() < until) {
          const answer = await client.ask(own);
          if (answer.shed) {
            shed += 1;
            await sleep(SHED_PAUSE_MS);
            continue;
          }
          firstByteMs.push(answer.firstByteMs);
          wholeMs.push(answer.wholeMs);
        }
      }),
    );
    if (wholeMs.length === 0) throw new Error("not one request was answered");
    return { requests: wholeMs.length, ms: performance.now() - started, firstByteMs, wholeMs, shed };
  } finally {
    for (const client of clients) client.close();
  }
}

export interface SparseOptions {
  readonly port: number;
  readonly request: Buffer;
  readonly perSecond: number;
  readonly ms: number;
}

/**
 * Requests at fixed moments, whether or not earlier ones are answered, on connections that are kept: what users' traffic
 * is like. @throws Error at the first answer that is neither 200 nor 503, or is cut.
 */
export async function sparseLoad({ port, request, perSecond, ms }: SparseOptions): Promise<LoadResult> {
  const idle: Client[] = [];
  const all: Client[] = [];
  const answers: Promise<Answer>[] = [];
  const started = performance.now();
  const ask = async (): Promise<Answer> => {
    const client = idle.pop() ?? (await Client.open(port));
    if (!all.includes(client)) all.push(client);
    const answer = await client.ask(request);
    idle.push(client);
    return answer;
  };
  try {
    for (let sent = 0; (sent * 1_000) / perSecond < ms; sent += 1) {
      await sleep(Math.max(0, started + (sent * 1_000) / perSecond - performance.now()));
      answers.push(ask());
    }
    const answered = await Promise.all(answers);
    const served = answered.filter(({ shed }) => !shed);
    return {
      requests: served.length,
      ms: performance.now() - started,
      firstByteMs: served.map(({ firstByteMs }) => firstByteMs),
      wholeMs: served.map(({ wholeMs }) => wholeMs),
      shed: answered.length - served.length,
    };
  } finally {
    for (const client of all) client.close();
  }
}

interface Running {
  readonly startedAt: number;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
  firstByteAt: number;
  shed: boolean;
  received: number;
  /** Bytes of head and body together; null: a stream. */
  expected: number | null;
}

class Client {
  readonly #socket: Socket;
  #running: Running | null = null;
  /** The last bytes of a stream, for an end that is cut in two. */
  #tail: Buffer = Buffer.alloc(0);

  static async open(port: number): Promise<Client> {
    const socket = connect({ port, host: "127.0.0.1", noDelay: true });
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
    });
    return new Client(socket);
  }

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.setTimeout(ANSWER_TIMEOUT_MS, () => this.#fail("an answer did not come in time"));
    socket.on("data", (chunk) => this.#data(chunk));
    socket.on("error", (error) => this.#fail(error.message));
    socket.on("close", () => this.#fail("the connection was closed"));
  }

  ask(request: Buffer): Promise<Answer> {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    const startedAt = performance.now();
    this.#running = { startedAt, resolve, reject, firstByteAt: 0, shed: false, received: 0, expected: null };
    this.#socket.write(request);
    return promise;
  }

  close(): void {
    this.#socket.destroy();
  }

  #data(chunk: Buffer): void {
    const running = this.#running;
    if (running === null) return this.#fail("bytes nobody asked for");
    if (running.received === 0) {
      running.firstByteAt = performance.now();
      const head = chunk.toString("latin1", 0, 1024);
      running.shed = head.startsWith("HTTP/1.1 503 ");
      if (!running.shed && !head.startsWith("HTTP/1.1 200 "))
        return this.#fail(`the answer began with ${head.slice(0, 600)}`);
      const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
      running.expected = length === undefined ? null : head.indexOf("\r\n\r\n") + 4 + Number(length);
    }
    running.received += chunk.length;
    if (running.expected === null ? this.#isStreamEnd(chunk) : running.received >= running.expected)
      this.#answered(running);
  }

  #isStreamEnd(chunk: Buffer): boolean {
    const end = STREAM_END.length;
    if (chunk.length >= end) this.#tail = chunk.subarray(-end);
    else this.#tail = Buffer.concat([this.#tail, chunk]).subarray(-end);
    return this.#tail.equals(STREAM_END);
  }

  #answered({ startedAt, firstByteAt, shed, resolve }: Running): void {
    this.#running = null;
    resolve({ firstByteMs: firstByteAt - startedAt, wholeMs: performance.now() - startedAt, shed });
  }

  #fail(message: string): void {
    this.#running?.reject(new Error(message));
    this.#running = null;
    this.#socket.destroy();
  }
}

/** Streams that stay open, until `close`. */
export interface OpenStreams {
  readonly count: number;
  close(): void;
}

/** A stream that is refused as overloaded is asked for again at most so often. */
const MAX_TRIES = 20;
/** So many connections are begun at once. */
const OPEN_AT_ONCE = 50;

/**
 * Opens streams and waits until each has its first bytes.
 * @throws Error at the first one that fails.
 */
export async function openStreams(port: number, request: Buffer, count: number): Promise<OpenStreams> {
  const sockets: Socket[] = [];
  const close = () => {
    for (const socket of sockets) socket.destroy();
  };
  try {
    while (sockets.length < count) {
      const some = Math.min(OPEN_AT_ONCE, count - sockets.length);
      await Promise.all(Array.from({ length: some }, () => openStream(port, request, sockets)));
    }
  } catch (error) {
    close();
    throw error;
  }
  await sleep(1_000);
  return { count, close };
}

async function openStream(port: number, request: Buffer, sockets: Socket[]): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    const socket = connect({ port, host: "127.0.0.1" });
    const refusal = await beginStream(socket, request);
    if (refusal === null) {
      sockets.push(socket);
      return;
    }
    // As a client does that is told to come back later.
    socket.destroy();
    if (!refusal.startsWith("HTTP/1.1 503 ") || tries === MAX_TRIES) throw new Error(refusal);
    await sleep(SHED_PAUSE_MS);
  }
}

/** @returns null when the stream has begun, else the beginning of another answer. */
function beginStream(socket: Socket, request: Buffer): Promise<string | null> {
  const { promise, resolve, reject } = Promise.withResolvers<string | null>();
  const timer = setTimeout(() => reject(new Error("a stream did not begin in time")), ANSWER_TIMEOUT_MS);
  socket.on("connect", () => socket.write(request));
  socket.on("error", reject);
  socket.on("close", () => reject(new Error("a stream was closed")));
  socket.on("data", (chunk) => {
    clearTimeout(timer);
    const head = chunk.toString("latin1", 0, 600);
    // Later bytes of a stream that has begun change nothing.
    resolve(head.startsWith("HTTP/1.1 ") && !head.startsWith("HTTP/1.1 200 ") ? head : null);
  });
  return promise.finally(() => clearTimeout(timer));
}
