import { pino, type DestinationStream, type Logger } from "pino";

/** Lines are written together: a write of its own for each costs more CPU than making the line. */
const GATHERED_BYTES = 64 * 1024;
/** No line waits longer than this; the rest is written when the process exits or says `fatal`. */
const GATHERED_MS = 100;
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
 * Standard output, written to without waiting for it. pino's own gathering measures all that it has gathered anew
 * for every line; here a line costs one push.
 */
class GatheredOutput implements DestinationStream {
  readonly #output = pino.destination({ fd: 1, sync: false, maxLength: MAX_WAITING_BYTES });
  #lines: string[] = [];
  #length = 0;
  #timer: NodeJS.Timeout | null = null;

  write(line: string): void {
    this.#lines.push(line);
    this.#length += line.length;
    if (this.#length >= GATHERED_BYTES) this.#pass();
    else this.#timer ??= setTimeout(() => this.#pass(), GATHERED_MS).unref();
  }

  /** pino calls it after a fatal line. */
  flushSync(): void {
    this.#pass();
    this.#output.flushSync();
  }

  #pass(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#lines.length === 0) return;
    this.#output.write(this.#lines.join(""));
    this.#lines = [];
    this.#length = 0;
  }
}

function standardOutput(): DestinationStream {
  const output = new GatheredOutput();
  process.once("exit", () => output.flushSync());
  return output;
}
