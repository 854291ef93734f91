/** What Chat Completions and Responses share. */
import type { Question } from "../client.ts";

export const openaiQuestion = (
  path: string,
  body: string | Buffer<ArrayBuffer>,
  more: Partial<Question> = {},
): Question => ({
  method: "POST",
  path,
  body,
  ...more,
  headers: { authorization: "Bearer {key}", "content-type": "application/json", ...more.headers },
});

/** Both name a missing model, a wrong field and a wrong key alike. */
export const openaiErrorType = (status: number): string | null =>
  [400, 401, 404].includes(status) ? "invalid_request_error" : null;

/** NaN where there is no number, so that every comparison fails. */
export const count = (value: unknown): number => (typeof value === "number" ? value : NaN);
