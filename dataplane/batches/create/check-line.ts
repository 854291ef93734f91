/** One line of a batch's input file (rules 4.9–4.12, dialects.md §A8). Pure. */
import { dialectPath, type Dialect } from "../../dialects/dialect.ts";
import { BODY_LIMIT } from "../../lib/body-limits.ts";
import { withoutMark } from "../../lib/byte-order-mark.ts";
import { MAX_FIELD_BYTES, readJsonFields, type FieldsRead } from "../../lib/json-fields.ts";
import { MAX_ITEM_BYTES } from "../batch.ts";
import type { DistinctTexts } from "./distinct-texts.ts";
import type { NewItem } from "./items.ts";

/** Why an input was refused, as the batch shows it. `line` counts physical lines from 1; null: the whole file. */
export interface InputError {
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
  readonly line: number | null;
}

export type CheckedLine =
  | { readonly kind: "item"; readonly item: NewItem }
  | { readonly kind: "blank" }
  | { readonly kind: "invalid"; readonly error: InputError };

/** Makes the error of one line, which its message names too. */
export const lineError = (
  line: number,
  code: string,
  message: string,
  param: string | null = null,
): InputError => ({ code, message: `${message} (line ${line})`, param, line });

/** The fields of a line's envelope. */
export const lineFields = ["custom_id", "method", "url", "body"] as const;

/** Returns a line without the byte order mark that may precede the first one. */
export const lineText = (bytes: Buffer, line: number): Buffer => (line === 1 ? withoutMark(bytes) : bytes);

/**
 * Judges one line.
 * @param text from `lineText`.
 * @param read the result of `readJsonFields` for `lineFields`; long lines are read in another thread.
 */
export function checkLine(
  text: Buffer,
  line: number,
  dialect: Dialect,
  customIds: DistinctTexts,
  read: FieldsRead = readJsonFields(text, lineFields),
): CheckedLine {
  if (read.isBlank) return { kind: "blank" };
  const invalid = (code: string, message: string, param?: string): CheckedLine => ({
    kind: "invalid",
    error: lineError(line, code, message, param),
  });
  if (read.fault !== null)
    return invalid("invalid_json_line", `This line is not parseable as valid JSON: ${read.fault.message}.`);
  if (!read.isObject) return invalid("invalid_json_line", "This line is not a JSON object.");
  const { custom_id: customId, method, url, body } = read.fields;
  for (const name of lineFields) {
    const field = read.fields[name];
    if (field === undefined || field.kind === "null") {
      return invalid("missing_required_parameter", `Missing required parameter: '${name}'.`, name);
    }
  }
  if (customId?.kind !== "string") return invalid("invalid_type", "custom_id must be a string.", "custom_id");
  if (customId.text === undefined)
    return invalid("invalid_value", `custom_id is longer than ${MAX_FIELD_BYTES / 1024} KiB.`, "custom_id");
  if (customId.text === "") return invalid("invalid_value", "custom_id must not be empty.", "custom_id");
  if (method?.text !== "POST") return invalid("invalid_method", "method must be 'POST'.", "method");
  if (url?.text !== dialectPath[dialect]) {
    return invalid("invalid_url", `url must be the batch's endpoint, '${dialectPath[dialect]}'.`, "url");
  }
  if (body?.kind !== "object") return invalid("invalid_type", "body must be an object.", "body");
  if (body.end - body.start > MAX_ITEM_BYTES) {
    return invalid("request_too_large", `The request is larger than ${BODY_LIMIT}.`, "body");
  }
  if (!customIds.add(customId.text)) {
    return invalid("duplicate_custom_id", "This custom_id is used by an earlier line.", "custom_id");
  }
  return {
    kind: "item",
    item: {
      customId: JSON.stringify(customId.text),
      body: text.subarray(body.start, body.end),
      model: body.model,
    },
  };
}
