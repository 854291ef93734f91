import { pino, type DestinationStream, type Logger } from "pino";
import { within } from "../lib/within.ts";

/** Lines are written together: a write of its own for each costs more CPU than making the line. */
const GATHERED_BYTES = 64 * 1024;
/** No line waits longer than this; the rest is written when the process exits or says `fatal`. */
const GATHERED_MS = 100;
/** At the end of the process. */
const LAST_LINES_MS = 1_000;
/** Whoever reads the log may fall behind this far; lines beyond it are lost rather than kept in memory. */
const MAX_WAITING_BYTES = 16 * 1024 * 1024;

/**
 * The process' logger: one JSON object a line on standard output. The fence is a second one: no code logs headers,
 * bodies or keys in the first place. (pino's own redaction takes every line apart and costs more than all the rest.)
 */
export function createLogger(level: string, destination?: DestinationStream): Logger {
  const options = {
    level,
    base: null,
    timestamp: () => `,"time":"${isoTime()}"`,
    formatters: { level: (label: string) => ({ level: label }), log: fenced },
    serializers: { err: (error: Error) => fenced(pino.stdSerializers.err(error)) },
  };
  return pino(options, destination ?? standardOutput());
}

/**
 * Writes a line of which there is one for each request, as JSON.stringify makes it: pino puts a line together from some
 * forty pieces, which costs twice as much. The fence is not asked: the caller names every member.
 */
export function logRequest(log: Logger, level: "info" | "warn", line: object): void {
  if (!log.isLevelEnabled(level)) return;
  const output = Reflect.get(log, pino.symbols.streamSym) as DestinationStream;
  const members = JSON.stringify(line).slice(1, -1);
  output.write(`{"level":"${level}","time":"${isoTime()}",${members},"msg":"request"}\n`);
}

let isoTimeOf = 0;
let isoTimeText = "";
/** Now. Many lines are written in the same millisecond. */
function isoTime(): string {
  const now = Date.now();
  if (now !== isoTimeOf) {
    isoTimeOf = now;
    isoTimeText = new Date(now).toISOString();
  }
  return isoTimeText;
}

/** The last two are of a store's errors, which say what a statement was about: names, hashes of keys. */
const forbidden = new Set(["headers", "body", "key", "authorization", "values", "detail"]);
const CENSOR = "[removed]";

/** What is logged without what never may be, on the first two levels. The object itself when there is nothing to take out. */
function fenced<Logged extends object>(logged: Logged): Logged {
  let clean: Map<string, unknown> | null = null;
  for (const [name, value] of Object.entries(logged)) {
    const allowed = forbidden.has(name) ? CENSOR : isPlain(value) ? fencedLevel(value) : value;
    if (allowed === value) continue;
    clean ??= new Map(Object.entries(logged));
    clean.set(name, allowed);
  }
  return clean === null ? logged : (Object.fromEntries(clean) as Logged);
}

function fencedLevel(logged: object): object {
  const found = Object.keys(logged).filter((name) => forbidden.has(name));
  if (found.length === 0) return logged;
  return { ...logged, ...Object.fromEntries(found.map((name) => [name, CENSOR])) };
}

/** Errors have a serializer of their own. */
const isPlain = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !(value instanceof Error);

/**
 * Standard output, written to without waiting for it. Lines are gathered as bytes outside of V8's heap: as texts they would
 * survive young collections and then fill the old generation. (pino's own gathering measures all that it has gathered
 * anew for every line.)
 */
class GatheredOutput implements DestinationStream {
  readonly #output = pino.destination({ fd: 1, sync: false, maxLength: MAX_WAITING_BYTES });
  readonly #gathered = Buffer.allocUnsafeSlow(GATHERED_BYTES);
  #length = 0;
  #timer: NodeJS.Timeout | null = null;
  /** Something of `#output` is on its way. */
  #writing = false;

  constructor() {
    this.#output.on("drain", () => (this.#writing = false));
  }

  write(line: string): void {
    // A character of a string has three bytes in UTF-8 at most.
    const most = 3 * line.length;
    if (this.#length + most > GATHERED_BYTES) this.#pass();
    if (most > GATHERED_BYTES) return this.#send(line);
    this.#length += this.#gathered.write(line, this.#length);
    this.#timer ??= setTimeout(() => this.#pass(), GATHERED_MS).unref();
  }

  /** pino's `flush`: calls back when all is written. */
  flush(done: () => void): void {
    this.#pass();
    if (this.#writing) this.#output.once("drain", done);
    else done();
  }

  /** pino calls it after a fatal line. What would only begin to be written now would be lost with the process. */
  flushSync(): void {
    this.#output.flushSync();
    if (this.#length > 0) pino.destination({ fd: 1, sync: true }).write(this.#take());
  }

  #pass(): void {
    if (this.#length > 0) this.#send(this.#take());
  }

  /** What is gathered, which begins anew. */
  #take(): string {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    const text = this.#gathered.toString("utf8", 0, this.#length);
    this.#length = 0;
    return text;
  }

  #send(text: string): void {
    this.#writing = true;
    this.#output.write(text);
  }
}

function standardOutput(): DestinationStream {
  const output = new GatheredOutput();
  process.once("exit", () => output.flushSync());
  return output;
}

/** Before `process.exit`: all lines are written, or whoever reads the log is gone or reads no more. */
export async function endLog(log: Logger): Promise<void> {
  const written = () => new Promise<void>((resolve) => log.flush(() => resolve()));
  // At the exit what is left would be written once more, for however long that takes.
  if (!(await within(LAST_LINES_MS, written))) process.removeAllListeners("exit");
}
