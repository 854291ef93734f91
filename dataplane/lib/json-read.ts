/** Reads a JSON object that a client sent, and says precisely what is wrong with one that cannot be read (rule 1.4). */
import { ApiError } from "./api-error.ts";
import { withoutMark } from "./byte-order-mark.ts";
import { fieldPath } from "./field-path.ts";
import { isBlank } from "./json-bytes.ts";
import { placeOf } from "./json-place.ts";
import { JsonFault, JsonReader } from "./json-reader.ts";

export type JsonObjectRead = Record<string, unknown>;

/**
 * Parses a request body that must be one JSON object.
 * @throws ApiError 400: empty, not UTF-8, not JSON (with line, column and byte), not an object, with a
 * key twice at the top level, or beyond the limits of body-limits.ts.
 */
export function readJsonObject(body: Buffer): JsonObjectRead {
  const bytes = withoutMark(body);
  if (isBlank(bytes)) {
    throw emptyBody();
  }
  try {
    const kind = JsonReader.whole(bytes, (reader) => {
      const found = reader.kind();
      if (found === "object") reader.members();
      else reader.skip();
      return found;
    });
    if (kind !== "object") throw new ApiError("invalid_request", "The request body must be a JSON object.");
  } catch (fault) {
    if (!(fault instanceof JsonFault)) throw fault;
    throw unreadable(bytes, fault, "openai");
  }
  return JSON.parse(bytes.toString("utf8")) as JsonObjectRead;
}

export const emptyBody = (): ApiError =>
  new ApiError("invalid_request", "The request body is empty; a JSON object is needed.");

/** The 400 for a body that is not JSON or exceeds a limit. `style`: the style of the path in its message. */
export function unreadable(bytes: Buffer, fault: JsonFault, style: "messages" | "openai"): ApiError {
  if (fault.kind === "syntax") return invalidJson(bytes, fault);
  if (fault.kind !== "depth" && fault.kind !== "keys")
    return new ApiError("invalid_request", `The request body: ${fault.message}.`, { cause: fault });
  const param = fieldPath(style, placeOf(bytes, fault.position));
  const message = `${param === "" ? "The request body" : param}: ${fault.message}.`;
  return new ApiError("invalid_value", message, { ...(param !== "" && { param }), cause: fault });
}

/** The 400 for a syntax fault; it names line and column. */
function invalidJson(bytes: Buffer, fault: JsonFault): ApiError {
  const before = bytes.subarray(0, fault.position);
  const lineStart = before.lastIndexOf(0x0a) + 1;
  let line = 1;
  for (let at = before.indexOf(0x0a); at >= 0; at = before.indexOf(0x0a, at + 1)) line += 1;
  const column = before.subarray(lineStart).toString("utf8").length + 1;
  const what = fault.message.replace(/ at position \d+$/, "");
  return new ApiError(
    "invalid_request",
    `The request body is not valid JSON: ${what} at line ${line}, column ${column} (position ${fault.position}).`,
    { cause: fault },
  );
}
