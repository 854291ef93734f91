/** Reads an upstream's error, whatever its form, as far as it came. What it means for the client: upstream-error.ts. Pure. */
import { closedJson } from "../lib/json-prefix.ts";
import { arrayOf, objectOf, parseJson, stringOf } from "./fields.ts";

/** `error` of either style, whatever surrounds it. */
export interface ReportedError {
  readonly type: string;
  /** `error.code`, or `error.details.error_code` of Messages style. */
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
  /** What validators such as pydantic say of a request's fields. */
  readonly details: readonly FieldError[];
}

interface FieldError {
  readonly type: string;
  /** The field of the request that the fault is in. */
  readonly field: string;
}

/** Reads an error, or what it wraps. */
function reported(error: unknown): ReportedError {
  const outer = flatly(error);
  const inner = wrappedIn(error);
  if (outer.code !== "400" || inner === null || inner.message === "") return outer;
  return { ...inner, type: inner.type || outer.type, code: inner.code || outer.code };
}

/** Reads the provider's own error, which OpenRouter puts as text beside "Provider returned error"; null: there is none. */
function wrappedIn(error: unknown): ReportedError | null {
  const raw = stringOf(objectOf(objectOf(error)?.["metadata"])?.["raw"]);
  return raw === null ? null : flatly(errorIn(parseJson(raw)));
}

/** Returns the error of a body, without what surrounds it. */
function errorIn(json: unknown): unknown {
  const body = objectOf(arrayOf(json)?.[0] ?? json);
  return body?.["error"] ?? stringOf(body?.["detail"]) ?? body;
}

function flatly(error: unknown): ReportedError {
  const fields = objectOf(error);
  const code = fields?.["code"] ?? objectOf(fields?.["details"])?.["error_code"];
  return {
    type: stringOf(fields?.["type"]) ?? "",
    code: typeof code === "number" ? String(code) : (stringOf(code) ?? ""),
    message: stringOf(error) ?? stringOf(fields?.["message"]) ?? "",
    param: stringOf(fields?.["param"]),
    details: fieldErrors(fields?.["detail"] ?? objectOf(fields?.["message"])?.["detail"]),
  };
}

/** Reads an `error` object or text, without what surrounds it. */
export const reportedError = (error: unknown): ReportedError => bounded(reported(error));

/** Most characters that are read of each text in an error. */
const MOST_SAID = 8 * 1024;

const bounded = ({ type, code, message, param, details }: ReportedError): ReportedError => ({
  type: words(type),
  code: words(code),
  message: words(message),
  param: param === null ? null : words(param),
  details: details.map((one) => ({ type: words(one.type), field: words(one.field) })),
});

/** Returns the beginning of a long text, but for its last word, which may be the beginning of a secret. */
const words = (text: string): string =>
  text.length <= MOST_SAID ? text : text.slice(0, Math.max(0, text.lastIndexOf(" ", MOST_SAID)));

/** Most faults that are read; a request has fewer fields. */
const MAX_DETAILS = 100;

/** FastAPI's `detail`, which Mistral has in its `message`. */
function fieldErrors(detail: unknown): FieldError[] {
  if (!Array.isArray(detail)) return [];
  return detail.slice(0, MAX_DETAILS).map((entry: unknown) => {
    const { type, loc } = objectOf(entry) ?? {};
    const place: unknown[] = Array.isArray(loc) ? loc : [];
    return { type: stringOf(type) ?? "", field: stringOf(place[place[0] === "body" ? 1 : 0]) ?? "" };
  });
}

/**
 * Reads an error of the three dialects, vLLM's flat form, FastAPI's `detail`, Google's list of one, or the beginning of one;
 * empty strings for anything else.
 */
export function readErrorBody(bytes: string | Uint8Array): ReportedError {
  const text = textIn(bytes);
  const body = parseJson(text);
  return bounded(body === undefined ? readBegunError(text) : reported(errorIn(body)));
}

/** Reads an error that was cut: its last word may be the beginning of a secret, and half a code says nothing. */
function readBegunError(begun: string): ReportedError {
  const { type, code, message, param, details } = reported(errorIn(parseJson(closedJson(begun))));
  const isWhole = (text: string) => begun.includes(JSON.stringify(text));
  return {
    type: isWhole(type) ? type : "",
    code: isWhole(code) ? code : "",
    message: isWhole(message) ? message : message.slice(0, Math.max(0, message.lastIndexOf(" "))),
    param: param !== null && isWhole(param) ? param : null,
    details: details.filter(({ field }) => isWhole(field)),
  };
}

const textIn = (bytes: string | Uint8Array): string =>
  typeof bytes === "string" ? bytes : Buffer.from(bytes).toString("utf8");
