import { pino, type DestinationStream, type Logger } from "pino";
import { within } from "../lib/within.ts";

/** Log lines are buffered up to this size: one write for each line costs more CPU than making the line. */
const GATHERED_BYTES = 64 * 1024;
/** No line stays in the buffer longer than this. The buffer is also flushed at exit and after a `fatal` line. */
const GATHERED_MS = 100;
/** At shutdown, the last lines have this long to be written. */
const LAST_LINES_MS = 1_000;
/** Most bytes kept for a slow reader of standard output; lines beyond it are dropped. */
const MAX_WAITING_BYTES = 16 * 1024 * 1024;

/**
 * Creates the process' logger: one JSON object a line on standard output. Removing forbidden fields here is a second line
 * of defence: no code logs headers, bodies or keys in the first place. (pino's own redaction parses every line and costs
 * more than all the rest.)
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
 * Writes the one line of a request with `JSON.stringify`: pino builds a line from some forty pieces, which costs twice as
 * much. Forbidden fields are not looked for, because the caller names every member.
 */
export function logRequest(log: Logger, level: "info" | "warn", line: object): void {
  if (!log.isLevelEnabled(level)) return;
  const output = Reflect.get(log, pino.symbols.streamSym) as DestinationStream;
  const members = JSON.stringify(line).slice(1, -1);
  output.write(`{"level":"${level}","time":"${isoTime()}",${members},"msg":"request"}\n`);
}

let isoTimeOf = 0;
let isoTimeText = "";
/** The current time in ISO 8601. The text is cached, because many lines are written in the same millisecond. */
function isoTime(): string {
  const now = Date.now();
  if (now !== isoTimeOf) {
    isoTimeOf = now;
    isoTimeText = new Date(now).toISOString();
  }
  return isoTimeText;
}

/** `values` and `detail` are members of Postgres errors that quote a statement's data: names, hashes of keys. */
const forbidden = new Set(["headers", "body", "key", "authorization", "values", "detail"]);
const CENSOR = "[removed]";

/** Removes forbidden members on the first two levels. Returns the very same object when it has none. */
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

/** Whether a value is an object other than an error; errors have a serializer of their own. */
const isPlain = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !(value instanceof Error);

/**
 * Writes to standard output without waiting for it. Lines are buffered as bytes outside V8's heap: strings would survive
 * young-generation collections and fill the old generation. (pino's own buffer measures its whole content again for every
 * line.)
 */
class GatheredOutput implements DestinationStream {
  readonly #output = pino.destination({ fd: 1, sync: false, maxLength: MAX_WAITING_BYTES });
  readonly #gathered = Buffer.allocUnsafeSlow(GATHERED_BYTES);
  #length = 0;
  #timer: NodeJS.Timeout | null = null;
  /** True while `#output` has bytes that are not written yet. */
  #writing = false;

  constructor() {
    this.#output.on("drain", () => (this.#writing = false));
  }

  write(line: string): void {
    // A UTF-16 code unit takes at most three bytes in UTF-8.
    const most = 3 * line.length;
    if (this.#length + most > GATHERED_BYTES) this.#pass();
    if (most > GATHERED_BYTES) return this.#send(line);
    this.#length += this.#gathered.write(line, this.#length);
    this.#timer ??= setTimeout(() => this.#pass(), GATHERED_MS).unref();
  }

  /** Called by pino. Writes the buffer and calls `done` when everything is written. */
  flush(done: () => void): void {
    this.#pass();
    if (this.#writing) this.#output.once("drain", done);
    else done();
  }

  /** Called by pino after a fatal line. Writes synchronously, because an asynchronous write would be lost with the process. */
  flushSync(): void {
    this.#output.flushSync();
    if (this.#length > 0) pino.destination({ fd: 1, sync: true }).write(this.#take());
  }

  #pass(): void {
    if (this.#length > 0) this.#send(this.#take());
  }

  /** Empties the buffer and returns its text. */
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

/** Call before `process.exit`: resolves when all lines are written, or after a second if nobody reads them. */
export async function endLog(log: Logger): Promise<void> {
  const written = () => new Promise<void>((resolve) => log.flush(() => resolve()));
  // The exit listener would try to write the rest again, and block for as long as nobody reads.
  if (!(await within(LAST_LINES_MS, written))) process.removeAllListeners("exit");
}
