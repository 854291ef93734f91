import { JsonFault, JsonReader } from "./json-reader.ts";
import { type Edit, removeEntries, splice } from "./json-splice.ts";

/**
 * Removes members that an object names again: the last stays, which every client reads. A text that is no JSON is
 * returned as it is.
 */
export function withoutRepeats(json: Buffer): Buffer {
  const edits: Edit[] = [];
  try {
    repeatsAhead(new JsonReader(json, "told"), edits);
  } catch (fault) {
    if (!(fault instanceof JsonFault)) throw fault;
    return json;
  }
  return splice(json, edits);
}

/** Adds the edits that remove repeated members within the value ahead. */
function repeatsAhead(reader: JsonReader, edits: Edit[]): void {
  const kind = reader.kind();
  if (kind === "array") reader.array(() => repeatsAhead(reader, edits));
  if (kind !== "object") return;
  const { members } = reader.members(() => repeatsAhead(reader, edits));
  const last = new Map(members.map(({ key }, index) => [key, index]));
  if (last.size === members.length) return;
  for (const edit of removeEntries(members, (index) => last.get(members[index]?.key ?? "") !== index))
    edits.push(edit);
}
