/** One line of a batch's input file (rules 4.9–4.12, reference/dialects.md §A8). Pure. */
import { dialectPath, type Dialect } from "../dialects/dialect.ts";
import { JsonFault, JsonReader, type Member } from "../lib/json-reader.ts";
import { MAX_ITEM_BYTES } from "./batch.ts";
import type { CustomIds } from "./custom-ids.ts";
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

/** Judges one line; a byte order mark may stand before the first one. */
export function checkLine(bytes: Buffer, line: number, dialect: Dialect, customIds: CustomIds): CheckedLine {
  const text = line === 1 && bytes.subarray(0, 3).equals(BYTE_ORDER_MARK) ? bytes.subarray(3) : bytes;
  if (isBlank(text)) return { kind: "blank" };
  const invalid = (code: string, message: string, param: string | null = null): CheckedLine => ({
    kind: "invalid",
    error: { code, message: `${message} (line ${line})`, param, line },
  });
  let read: ReadLine;
  try {
    read = readLine(text);
  } catch (fault) {
    if (!(fault instanceof JsonFault)) throw fault;
    return invalid("invalid_json_line", `This line is not parseable as valid JSON: ${fault.message}.`);
  }
  if (!read.isObject) return invalid("invalid_json_line", "This line is not a JSON object.");
  const { custom_id: customId, method, url, body } = read.fields;
  for (const [name, field] of Object.entries(read.fields)) {
    if (field === undefined || field.kind === "null") {
      return invalid("missing_required_parameter", `Missing required parameter: '${name}'.`, name);
    }
  }
  if (customId?.kind !== "string") return invalid("invalid_type", "custom_id must be a string.", "custom_id");
  if (customId.text === "") return invalid("invalid_value", "custom_id must not be empty.", "custom_id");
  if (method?.text !== "POST") return invalid("invalid_method", "method must be 'POST'.", "method");
  if (url?.text !== dialectPath[dialect]) {
    return invalid("invalid_url", `url must be the batch's endpoint, '${dialectPath[dialect]}'.`, "url");
  }
  if (body?.kind !== "object") return invalid("invalid_type", "body must be an object.", "body");
  if (body.end - body.start > MAX_ITEM_BYTES) {
    return invalid("request_too_large", "The request is larger than 32 MiB.", "body");
  }
  if (!customIds.add(customId.text)) {
    return invalid("duplicate_custom_id", "This custom_id is used by an earlier line.", "custom_id");
  }
  return {
    kind: "item",
    item: { customId: JSON.stringify(customId.text), body: text.subarray(body.start, body.end) },
  };
}

const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);
const isBlank = (bytes: Buffer) => bytes.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0d);

interface Field extends Member {
  /** Of a string. */
  readonly text: string;
}
interface ReadLine {
  readonly isObject: boolean;
  readonly fields: Readonly<Record<"custom_id" | "method" | "url" | "body", Field | undefined>>;
}

/** @throws JsonFault */
function readLine(bytes: Buffer): ReadLine {
  return JsonReader.whole(bytes, (reader) => {
    const isObject = reader.kind() === "object";
    const fields: Record<keyof ReadLine["fields"], Field | undefined> = {
      custom_id: undefined,
      method: undefined,
      url: undefined,
      body: undefined,
    };
    if (!isObject) {
      reader.skip();
      return { isObject, fields };
    }
    const texts = new Map<string, string>();
    const { members } = reader.members((key) => {
      if (key === "body" || !Object.hasOwn(fields, key)) return;
      const text = reader.string();
      if (text !== undefined) texts.set(key, text);
    });
    for (const member of members) {
      if (Object.hasOwn(fields, member.key)) {
        fields[member.key as keyof typeof fields] = { ...member, text: texts.get(member.key) ?? "" };
      }
    }
    return { isObject, fields };
  });
}
