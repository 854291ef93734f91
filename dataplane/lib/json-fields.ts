/** Finds a few top-level fields of a JSON text without parsing the rest: the envelope around a batch's request. */
import { JsonPiece } from "./json-piece.ts";
import { JsonFault, JsonReader, type JsonFaultKind, type Member } from "./json-reader.ts";

/** Longer strings are not decoded: no envelope has them. Bytes as they are written, without the quotes. */
export const MAX_FIELD_BYTES = 64 * 1024;

export interface JsonField extends Member {
  /** Of a string; undefined for other values and for texts beyond `MAX_FIELD_BYTES`. */
  readonly text: string | undefined;
}

/** What was found; plain data. `fault`: why it is no JSON within the limits. */
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
      const texts = new Map<string, string>();
      const { members } = reader.members((key) => {
        if (!names.includes(key)) return;
        const kind = reader.kind();
        if (kind === "object") reader.position = afterText(bytes, reader.position);
        if (kind !== "string") return;
        const start = reader.position;
        reader.skip();
        if (reader.position - start - 2 > MAX_FIELD_BYTES) return;
        texts.set(key, JSON.parse(bytes.toString("utf8", start, reader.position)) as string);
      });
      for (const member of members)
        if (names.includes(member.key)) fields[member.key] = { ...member, text: texts.get(member.key) };
      return { ...nothing, isObject: true };
    });
  } catch (fault) {
    if (!(fault instanceof JsonFault)) throw fault;
    return { ...nothing, fault: { kind: fault.kind, message: fault.message } };
  }
}

/**
 * Where an object ends that is a text of its own, such as a batch's request: its depth counts from itself, and that it
 * has more of anything than a text may have is told by whoever reads it.
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

function isBlank(bytes: Buffer): boolean {
  let at = 0;
  while (at < bytes.length && (bytes[at] === 0x20 || bytes[at] === 0x09 || bytes[at] === 0x0d)) at += 1;
  return at === bytes.length;
}
