/** The failed lines of a batch: of its results, of either kind, or of the file that it was to be made from. */
import type { Batch } from "../api/schema.ts";

export interface FailedLine {
  /** Its `custom_id`, or its number in the input file. */
  readonly line: string;
  readonly code: string;
  readonly message: string;
}

interface ResultLine {
  readonly custom_id?: string;
  /** Messages. */
  readonly result?: {
    readonly type: string;
    readonly error?: { readonly error?: ErrorBody } & ErrorBody;
  };
  /** The other dialects: an error of the line itself, or an answer that is one. */
  readonly error?: ErrorBody | null;
  readonly response?: { readonly status_code: number; readonly body?: { readonly error?: ErrorBody } } | null;
}
interface ErrorBody {
  readonly type?: string;
  readonly code?: string | null;
  readonly message?: string;
}

/** As many as a batch may have: fewer would be told as if they were all. */
const MOST_LINES = 10_000;

/** @param text JSON Lines; what succeeded is left out. @throws SyntaxError */
export function failedLines(text: string): FailedLine[] {
  const found: FailedLine[] = [];
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    const failed = failureOf(JSON.parse(line) as ResultLine);
    if (failed !== null) found.push(failed);
    if (found.length === MOST_LINES) break;
  }
  return found;
}

/** Why a batch ran nothing; what is wrong with the file as a whole has no line. */
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
