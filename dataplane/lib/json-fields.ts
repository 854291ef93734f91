/** Finds a few top-level fields of a JSON text without parsing the rest: the envelope around a batch's request. */
import { isBlank } from "./json-bytes.ts";
import { JsonPiece } from "./json-piece.ts";
import { JsonFault, JsonReader, type JsonFaultKind, type Member } from "./json-reader.ts";

/** Longer strings are not decoded, as no envelope has them. In bytes of the JSON text, without the quotes. */
export const MAX_FIELD_BYTES = 64 * 1024;

export interface JsonField extends Member {
  /** The value, if it is a string; undefined for other values and for texts beyond `MAX_FIELD_BYTES`. */
  readonly text: string | undefined;
  /** The `model` of a value that is an object, as in `text`; undefined also if the object has it twice. */
  readonly model: string | undefined;
}

/** The fields found, as plain data. `fault`: why the text is not JSON within the limits. */
export interface FieldsRead {
  readonly isBlank: boolean;
  readonly isObject: boolean;
  readonly fields: Readonly<Record<string, JsonField | undefined>>;
  readonly fault: { readonly kind: JsonFaultKind; readonly message: string } | null;
}

export function readJsonFields(bytes: Buffer, names: readonly string[]): FieldsRead {
  const fields: Record<string, JsonField | undefined> = {};
  const nothing = { isBlank: false, isObject: false, fields, fault: null };
  if (isBlank(bytes)) return { ...nothing, isBlank: true };
  try {
    return JsonReader.whole(bytes, (reader) => {
      if (reader.kind() !== "object") {
        reader.skip();
        return nothing;
      }
      const found = new Map<string, Pick<JsonField, "text" | "model">>();
      const { members } = reader.members((key) => {
        if (!names.includes(key)) return;
        if (reader.kind() === "object") {
          const { end, model } = readText(bytes, reader.position);
          reader.position = end;
          found.set(key, { text: undefined, model });
        } else found.set(key, { text: shortString(reader), model: undefined });
      });
      for (const member of members) {
        const read = found.get(member.key);
        if (read !== undefined) fields[member.key] = { ...member, ...read };
      }
      return { ...nothing, isObject: true };
    });
  } catch (fault) {
    if (!(fault instanceof JsonFault)) throw fault;
    return { ...nothing, fault: { kind: fault.kind, message: fault.message } };
  }
}

/** The string ahead; undefined when the value is no string or is too long. */
function shortString(reader: JsonReader): string | undefined {
  if (reader.kind() !== "string") return undefined;
  const start = reader.position;
  reader.skip();
  if (reader.position - start - 2 > MAX_FIELD_BYTES) return undefined;
  return JSON.parse(reader.bytes.toString("utf8", start, reader.position)) as string;
}

/** Reads an object that is a JSON text of its own, such as a batch's request: where it ends, and which model it names. */
function readText(
  bytes: Buffer,
  start: number,
): { readonly end: number; readonly model: string | undefined } {
  const reader = new JsonReader(bytes);
  reader.position = start;
  let model: string | undefined;
  try {
    reader.object((key) => {
      if (key === "model") model = shortString(reader);
    });
    return { end: reader.position, model };
  } catch (fault) {
    if (!(fault instanceof JsonFault) || fault.kind === "syntax") throw fault;
    return { end: afterText(bytes, start), model: undefined };
  }
}

/**
 * Returns where such an object ends. Its depth is counted from itself; its limits are checked when it is read itself.
 */
function afterText(bytes: Buffer, start: number): number {
  const reader = new JsonReader(bytes);
  reader.position = start;
  try {
    reader.skip();
    return reader.position;
  } catch (fault) {
    if (!(fault instanceof JsonFault) || fault.kind === "syntax") throw fault;
  }
  const piece = new JsonPiece();
  const end = piece.push(bytes, start);
  if (piece.complete) return end;
  throw new JsonFault("syntax", "Unexpected end of JSON", bytes.length);
}
