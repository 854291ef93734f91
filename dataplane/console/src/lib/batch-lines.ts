/** The failed lines of a batch of either kind: those of its results, or those of an input file that was refused. */
import type { Batch } from "../api/schema.ts";

export interface FailedLine {
  /** Its `custom_id`, or its number in the input file. */
  readonly line: string;
  readonly code: string;
  readonly message: string;
}

interface ResultLine {
  readonly custom_id?: string;
  /** In Messages batches. */
  readonly result?: {
    readonly type: string;
    readonly error?: { readonly error?: ErrorBody } & ErrorBody;
  };
  /** In batches of the other dialects: an error of the line itself, or an answer that is an error. */
  readonly error?: ErrorBody | null;
  readonly response?: { readonly status_code: number; readonly body?: { readonly error?: ErrorBody } } | null;
}
interface ErrorBody {
  readonly type?: string;
  readonly code?: string | null;
  readonly message?: string;
}

export interface FailedLines {
  readonly lines: readonly FailedLine[];
  /** Whether reading stopped before the end of the results. */
  readonly isCut: boolean;
}

/** Failed lines that are read at most: as many as a batch may have. */
export const MOST_LINES = 10_000;
/** Bytes that are read at most: succeeded lines between the failed ones are read too, thousands of answers of megabytes. */
export const MOST_BYTES = 256 * 1024 * 1024;
/** Time between two calls of `show`. */
const SHOW_MS = 300;

/**
 * Reads results as they come and keeps the failed lines, and never more than one of the others.
 * @param results JSON Lines
 * @param show called with the failed lines so far while the others are still being read
 * @throws SyntaxError; TypeError when the connection breaks
 */
export async function readFailedLines(
  results: ReadableStream<Uint8Array>,
  show: (some: FailedLines) => void = () => {},
  mostBytes = MOST_BYTES,
): Promise<FailedLines> {
  const found: FailedLine[] = [];
  const decoder = new TextDecoder();
  const reader = results.getReader();
  /** The pieces of a line whose end has not been read. */
  let begun: string[] = [];
  let bytes = 0;
  let shownAt = performance.now();
  for (;;) {
    const { done, value } = await reader.read();
    const ended = (decoder.decode(value, { stream: !done }) + (done ? "\n" : "")).split("\n");
    const rest = ended.pop() ?? "";
    for (const end of ended) {
      const failed = failureIn(`${begun.join("")}${end}`);
      begun = [];
      if (failed !== null) found.push(failed);
    }
    begun.push(rest);
    if (found.length > MOST_LINES) break;
    if (done) return { lines: found, isCut: false };
    bytes += value.length;
    if (bytes > mostBytes) break;
    if (found.length === 0 || performance.now() - shownAt < SHOW_MS) continue;
    shownAt = performance.now();
    show({ lines: [...found], isCut: false });
  }
  await reader.cancel();
  return { lines: found.slice(0, MOST_LINES), isCut: true };
}

function failureIn(line: string): FailedLine | null {
  return line.trim() === "" ? null : failureOf(JSON.parse(line) as ResultLine);
}

/** Returns the errors for which a batch ran nothing; one of the file as a whole has no line number. */
export const inputFailures = (errors: Batch["errors"]): FailedLine[] =>
  (errors?.data ?? []).map(({ line, code, message }) => ({ line: line?.toString() ?? "–", code, message }));

function failureOf({ custom_id: line = "", result, error, response }: ResultLine): FailedLine | null {
  if (result !== undefined) {
    if (result.type === "succeeded") return null;
    const body = result.error?.error ?? result.error;
    return { line, code: body?.type ?? result.type, message: body?.message ?? "" };
  }
  const body = error ?? ((response?.status_code ?? 0) >= 400 ? (response?.body?.error ?? {}) : null);
  if (body === null) return null;
  return { line, code: body.code ?? body.type ?? "", message: body.message ?? "" };
}
