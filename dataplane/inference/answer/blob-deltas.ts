import { JsonFault, JsonReader, type Span } from "../../lib/json-reader.ts";
import { replaceValue } from "../../lib/json-splice.ts";
import { frameData, frameName, MAX_EVENT_BYTES, type SseFrame } from "../../lib/sse.ts";
import { ENCRYPTED_KEY } from "../inspect/reasoning.ts";
import { blobAhead } from "../inspect/walk.ts";
import { LeanFrame, wholeFrame } from "./lean-frame.ts";
import { type AnswerSeal, editedFrame } from "./seal-answer.ts";
import { PASS, SWALLOW, type FrameAction } from "./usage-tap.ts";

/** Characters beyond which pieces of a signature are not joined: a whole one has to fit one event. */
const MAX_SIGNATURE_LENGTH = MAX_EVENT_BYTES;
const SIGNATURE = '"signature_delta"';

/** A delta with a blob that clients send back later. */
interface BlobDelta {
  readonly kind: "signature" | "encrypted";
  /** All places of the blob: a key may come twice, and clients read the last. */
  readonly spans: readonly Span[];
  /** The text at the last place. */
  readonly text: string;
}

/** A signature that is still coming: its first event, and its text so far. */
interface Pending {
  readonly frame: SseFrame;
  readonly spans: readonly Span[];
  signature: string;
}

/**
 * Seals the blobs in the deltas of a Messages stream. A signature usually comes whole in one event, but an upstream may
 * cut it in pieces, which no official client joins. So it is held back until another event comes, and leaves as one
 * event, with the bytes of its first event around it.
 */
export class BlobDeltas {
  readonly #seal: AnswerSeal;
  #pending: Pending | null = null;

  constructor(seal: AnswerSeal) {
    this.#seal = seal;
  }

  /** Bytes of memory that a pending signature takes. */
  get heldBytes(): number {
    if (this.#pending === null) return 0;
    const { frame, signature } = this.#pending;
    return wholeFrame(frame).bytes.length + signature.length;
  }

  /** Decides what passes for a `content_block_delta`. */
  delta(frame: SseFrame): FrameAction {
    const data = frame.bytes.subarray(frame.dataStart, frame.end);
    if (!data.includes(SIGNATURE, 0, "latin1") && !data.includes(ENCRYPTED_KEY, 0, "latin1"))
      return this.behind(frame, PASS);
    const found = blobDelta(frame);
    if (found === null) return this.behind(frame, PASS);
    if (found.kind === "signature") return this.#hold(frame, found);
    return this.behind(frame, { kind: "replace", bytes: this.#sealed(frame, found) });
  }

  /** Puts the pending signature, now complete, before a frame. Pings and comments complete nothing. */
  behind(frame: SseFrame, inspected: FrameAction): FrameAction {
    if (this.#pending === null || frameName(frame) === "ping") return inspected;
    if (inspected.kind === "error" || inspected.kind === "swallow") return inspected;
    const before = this.#complete(this.#pending);
    this.#pending = null;
    if (inspected.kind === "replace")
      return { kind: "replace", bytes: Buffer.concat([before, inspected.bytes]) };
    const { bytes: around, start, end } = wholeFrame(frame);
    const bytes = Buffer.concat([before, around.subarray(start, end)]);
    return inspected.kind === "terminal" ? { ...inspected, bytes } : { kind: "replace", bytes };
  }

  #hold(frame: SseFrame, { spans, text }: BlobDelta): FrameAction {
    if (this.#pending === null) {
      // The frame object is reused, its bytes are not.
      const kept = frame instanceof LeanFrame ? frame : { ...frame };
      this.#pending = { frame: kept, spans, signature: text };
      return SWALLOW;
    }
    if (this.#pending.signature.length > MAX_SIGNATURE_LENGTH) return this.behind(frame, PASS);
    this.#pending.signature += text;
    return SWALLOW;
  }

  #complete({ frame, spans, signature }: Pending): Buffer {
    return this.#sealed(frame, { kind: "signature", spans, text: signature });
  }

  #sealed(frame: SseFrame, { kind, spans, text }: BlobDelta): Buffer {
    const sealed = this.#seal.seal(kind, "", text);
    return editedFrame(
      frame,
      spans.map((span) => replaceValue(span, sealed)),
    );
  }
}

/** Reads the blob of a delta; null: there is none, or it cannot be read. */
function blobDelta(frame: SseFrame): BlobDelta | null {
  const reader = new JsonReader(frameData(frame), "told");
  const spans: Span[] = [];
  let kind: BlobDelta["kind"] = "encrypted";
  try {
    reader.object((key) => {
      if (key === "delta" && reader.kind() === "object") kind = readDelta(reader, spans);
    });
  } catch (fault) {
    if (!(fault instanceof JsonFault)) throw fault;
  }
  const last = spans.at(-1);
  if (last === undefined) return null;
  const text = JSON.parse(reader.bytes.toString("utf8", last.start, last.end)) as string;
  return { kind, spans, text };
}

/** Adds the places of the blobs that fit the delta's type. */
function readDelta(reader: JsonReader, spans: Span[]): BlobDelta["kind"] {
  let type: string | undefined;
  const strings: { readonly key: string; readonly span: Span }[] = [];
  reader.object((key) => {
    if (key === "type") type = reader.string();
    else if (key === "signature" || key === "encrypted_content") {
      const span = blobAhead(reader);
      if (span !== null) strings.push({ key, span });
    }
  });
  const isSignature = type === "signature_delta";
  const wanted = isSignature ? "signature" : "encrypted_content";
  for (const { key, span } of strings) if (key === wanted) spans.push(span);
  return isSignature ? "signature" : "encrypted";
}
