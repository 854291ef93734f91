/**
 * Seals the blobs of an upstream's answer that clients send back later, by position: the bytes around them stay as they
 * are (rule 7.12, design.md §4.2).
 */
import type { Sealer } from "../../dialects/codecs.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { type BlobPlace, sealBlob } from "../../dialects/reasoning.ts";
import { JsonReader, type Span } from "../../lib/json-reader.ts";
import { type Edit, replaceValue, splice } from "../../lib/json-splice.ts";
import { frameData, frameName, type SseFrame } from "../../lib/sse.ts";
import { ENCRYPTED_KEY, isBlobKey, keepBlockBlobs, type BlockBlob } from "../inspect/reasoning.ts";
import { blobAhead } from "../inspect/walk.ts";
import { LeanFrame } from "./lean-frame.ts";
import type { ReasoningBlob } from "../inspect/content.ts";
import { MOST_SEALED } from "../request/sealed-reasoning.ts";

/** Most characters of blobs whose seals are remembered; of an answer with more some are sealed twice. */
const MAX_REMEMBERED = 4 * 1024 * 1024;
/** Stands in place of what is not sealed any more: an empty blob, which is left out when it comes back. */
const NO_BLOB = '""';
/** An answer without one of these has nothing to seal. Inside a text the quotes would be escaped. */
const signsOf: Readonly<Record<Dialect, readonly string[]>> = {
  messages: ['"signature"', '"redacted_thinking"', ENCRYPTED_KEY],
  responses: [ENCRYPTED_KEY],
  chat: [],
};

/**
 * Seals for one answer: the same blob stands in several events of a stream, and gets the same seal. Blobs beyond MOST_SEALED are left
 * out: nobody may see them unsealed.
 */
export class AnswerSeal {
  readonly #sealer: Sealer;
  readonly #dialect: "messages" | "responses";
  readonly #sealed = new Map<string, string>();
  #remembered = 0;
  #seals = 0;

  constructor(sealer: Sealer, dialect: "messages" | "responses") {
    this.#sealer = sealer;
    this.#dialect = dialect;
  }

  /** Returns the sealed blob as a JSON string. `id`: of the Responses item that holds it. */
  seal(field: BlobPlace["field"], id: string, blob: string): string {
    const known = this.#sealed.get(blob);
    if (known !== undefined) return known;
    this.#seals += 1;
    if (this.#seals > MOST_SEALED) return NO_BLOB;
    const sealed = JSON.stringify(sealBlob({ dialect: this.#dialect, field, id }, blob, this.#sealer));
    if (this.#remembered + blob.length <= MAX_REMEMBERED) {
      this.#remembered += blob.length;
      this.#sealed.set(blob, sealed);
    }
    return sealed;
  }
}

/** Whether a whole answer, or the data of an event, may hold something to seal. */
export const mayHoldBlobs = (dialect: Dialect, body: Buffer): boolean =>
  signsOf[dialect].some((sign) => body.includes(sign, 0, "latin1"));

/** Returns the edits that seal a whole answer, which must be JSON. */
export function wholeSealEdits(dialect: Dialect, body: Buffer, seal: AnswerSeal): Edit[] {
  const edits: Edit[] = [];
  if (!mayHoldBlobs(dialect, body)) return edits;
  const reader = new JsonReader(body, "told");
  reader.object((key) => {
    if (dialect === "messages" && key === "content") sealBlocksAhead(reader, seal, edits);
    else if (dialect === "responses" && key === "output") sealItemsAhead(reader, seal, edits);
  });
  return edits;
}

/** Returns a Responses output item as it is kept: sealed like the one that the client got. */
export function sealedItem(item: Buffer, seal: AnswerSeal | null): Buffer {
  if (seal === null || !item.includes(ENCRYPTED_KEY, 0, "latin1")) return item;
  const edits: Edit[] = [];
  sealItemsAhead(new JsonReader(item, "told"), seal, edits);
  return splice(item, edits);
}

/** Seals the content blocks of a Messages answer. */
export function sealBlocksAhead(reader: JsonReader, seal: AnswerSeal, edits: Edit[]): void {
  if (reader.kind() !== "array") return;
  reader.array(() => {
    sealBlockAhead(reader, seal, edits);
  });
}

/** Seals the content block ahead. @returns the block's type. */
export function sealBlockAhead(reader: JsonReader, seal: AnswerSeal, edits: Edit[]): string | undefined {
  if (reader.kind() !== "object") return undefined;
  const strings: BlockBlob[] = [];
  let type: string | undefined;
  reader.object((key) => {
    if (key === "type") type = reader.string();
    else if (isBlobKey(key) && reader.kind() === "string") {
      const span = blobAhead(reader);
      if (span !== null) strings.push({ key, span, ours: false });
    }
  });
  const blobs: ReasoningBlob[] = [];
  keepBlockBlobs(strings, type, 0, blobs);
  for (const blob of blobs)
    edits.push(replaceValue(blob, seal.seal(blob.field, "", textOf(reader.bytes, blob))));
  return type;
}

/** Seals every `encrypted_content` within the value ahead, each with the `id` of its object. */
function sealItemsAhead(reader: JsonReader, seal: AnswerSeal, edits: Edit[]): void {
  const kind = reader.kind();
  if (kind === "array") reader.array(() => sealItemsAhead(reader, seal, edits));
  if (kind !== "object") return;
  let id = "";
  const blobs: Span[] = [];
  reader.object((key) => {
    if (key === "id") id = reader.string() ?? "";
    else if (key !== "encrypted_content" || reader.kind() !== "string") sealItemsAhead(reader, seal, edits);
    else {
      const blob = blobAhead(reader);
      if (blob !== null) blobs.push(blob);
    }
  });
  for (const blob of blobs)
    edits.push(replaceValue(blob, seal.seal("encrypted", id, textOf(reader.bytes, blob))));
}

/** Seals an event of a Responses stream: its item, its response's output, or fields of newer events. */
export function sealEventAhead(reader: JsonReader, seal: AnswerSeal, edits: Edit[]): void {
  reader.object((key) => {
    if (key !== "response") return sealItemsAhead(reader, seal, edits);
    if (reader.kind() !== "object") return;
    reader.object((name) => {
      if (name === "output") sealItemsAhead(reader, seal, edits);
    });
  });
}

/** Whether an event of a Responses stream may hold something to seal. */
export const mayHoldEncrypted = ({ bytes, dataStart, end }: SseFrame): boolean =>
  bytes.subarray(dataStart, end).includes(ENCRYPTED_KEY, 0, "latin1");

const textOf = (bytes: Buffer, { start, end }: Span): string =>
  JSON.parse(bytes.toString("utf8", start, end)) as string;

/**
 * Makes edits in the data of a frame. Their offsets count from the data's beginning.
 * @returns bytes that end as the frame does.
 */
export function editedFrame(frame: SseFrame, edits: readonly Edit[]): Buffer {
  if (frame instanceof LeanFrame)
    return editedFrame(
      frame.whole,
      edits.map((edit) => frame.inWholeData(edit)),
    );
  const { bytes, start, end, dataStart, dataEnd, dataLines } = frame;
  if (dataLines === 1)
    return Buffer.concat([
      bytes.subarray(start, dataStart),
      splice(bytes.subarray(dataStart, dataEnd), edits),
      bytes.subarray(dataEnd, end),
    ]);
  const data = splice(frameData(frame), edits).toString("utf8").replaceAll("\n", "\ndata: ");
  const name = frameName(frame);
  return Buffer.from(`${name === "" ? "" : `event: ${name}\n`}data: ${data}${frame.closed ? "\n\n" : ""}`);
}
