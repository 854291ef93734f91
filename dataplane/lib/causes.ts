/** Causes and codes of errors. */

/** Bound of a chain of causes: an error may be its own cause. Libraries make far shorter ones. */
const MOST_CAUSES = 32;

/** The error, its cause, and so on to the first one; empty when `error` is not an Error. */
export function causesOf(error: unknown): readonly Error[] {
  const causes: Error[] = [];
  for (let cause = error; cause instanceof Error && causes.length < MOST_CAUSES; cause = cause.cause)
    causes.push(cause);
  return causes;
}

/** An error's own code: an SQLSTATE of Postgres', or a word of Node's such as `ECONNRESET`. null: it has none. */
export const codeOf = (error: unknown): string | null =>
  error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : null;

/** The SQLSTATE of an error; null: it has none. */
export function sqlStateOf(error: unknown): string | null {
  const code = codeOf(error);
  return code !== null && /^[0-9A-Z]{5}$/.test(code) ? code : null;
}
