import { JsonFault, JsonReader, type Span } from "../../lib/json-reader.ts";
import { type Edit, replaceValue } from "../../lib/json-splice.ts";
import { frameData, frameName, MAX_EVENT_BYTES, type SseFrame } from "../../lib/sse.ts";
import { type AnswerSeal, editedFrame } from "./seal-answer.ts";
import { PASS, SWALLOW, type FrameAction } from "./usage-tap.ts";

/** So many characters of a signature are joined: it cannot be longer than one event may be. */
const MAX_SIGNATURE_LENGTH = MAX_EVENT_BYTES;
const SIGNATURE = '"signature_delta"';
const ENCRYPTED = '"encrypted_content"';

/** A delta that hands out something to be sent back. */
interface BlobDelta {
  readonly kind: "signature" | "encrypted";
  readonly span: Span;
  readonly text: string;
}

/** The first event of a signature that is still coming, and what came of it. */
interface Pending {
  readonly frame: SseFrame;
  readonly span: Span;
  signature: string;
}

/**
 * Seals what a Messages stream hands out in deltas. A signature comes whole in one event as a rule; an upstream may
 * cut it in pieces, which no official client joins. So it is held back until something else comes, and leaves as one
 * event, the first one's bytes around it.
 */
export class BlobDeltas {
  readonly #seal: AnswerSeal;
  #pending: Pending | null = null;

  constructor(seal: AnswerSeal) {
    this.#seal = seal;
  }

  /** What becomes of a `content_block_delta`. */
  delta(frame: SseFrame): FrameAction {
    const data = frame.bytes.subarray(frame.dataStart, frame.end);
    if (!data.includes(SIGNATURE, 0, "latin1") && !data.includes(ENCRYPTED, 0, "latin1"))
      return this.behind(frame, PASS);
    const found = blobDelta(frame);
    if (found === null) return this.behind(frame, PASS);
    if (found.kind === "signature") return this.#hold(frame, found);
    const edit = replaceValue(found.span, this.#seal.seal("encrypted", "", found.text));
    return this.behind(frame, { kind: "replace", bytes: editedFrame(frame, [edit]) });
  }

  /** A frame, with the signature before it that is complete now. Pings and comments complete nothing. */
  behind(frame: SseFrame, inspected: FrameAction): FrameAction {
    if (this.#pending === null || frameName(frame) === "ping") return inspected;
    if (inspected.kind === "error" || inspected.kind === "swallow") return inspected;
    const before = this.#complete(this.#pending);
    this.#pending = null;
    if (inspected.kind === "replace")
      return { kind: "replace", bytes: Buffer.concat([before, inspected.bytes]) };
    const bytes = Buffer.concat([before, frame.bytes.subarray(frame.start, frame.end)]);
    return inspected.kind === "terminal" ? { ...inspected, bytes } : { kind: "replace", bytes };
  }

  #hold(frame: SseFrame, { span, text }: BlobDelta): FrameAction {
    if (this.#pending === null) {
      // The frame object is used again; its bytes stay.
      this.#pending = { frame: { ...frame }, span, signature: text };
      return SWALLOW;
    }
    if (this.#pending.signature.length > MAX_SIGNATURE_LENGTH) return this.behind(frame, PASS);
    this.#pending.signature += text;
    return SWALLOW;
  }

  #complete({ frame, span, signature }: Pending): Buffer {
    const edit: Edit = replaceValue(span, this.#seal.seal("signature", "", signature));
    return editedFrame(frame, [edit]);
  }
}

/** null: the delta only speaks of such a thing, or cannot be read. */
function blobDelta(frame: SseFrame): BlobDelta | null {
  const reader = new JsonReader(frameData(frame), "told");
  let found: BlobDelta | null = null;
  try {
    reader.object((key) => {
      if (key === "delta" && reader.kind() === "object") found = readDelta(reader);
    });
  } catch (fault) {
    if (!(fault instanceof JsonFault)) throw fault;
  }
  return found;
}

function readDelta(reader: JsonReader): BlobDelta | null {
  let type: string | undefined;
  const spans = new Map<string, Span>();
  reader.object((key) => {
    if (key === "type") type = reader.string();
    else if (reader.kind() === "string" && (key === "signature" || key === "encrypted_content")) {
      const start = reader.position;
      reader.skip();
      spans.set(key, { start, end: reader.position });
    }
  });
  const isSignature = type === "signature_delta";
  const span = spans.get(isSignature ? "signature" : "encrypted_content");
  if (span === undefined) return null;
  const text = JSON.parse(reader.bytes.toString("utf8", span.start, span.end)) as string;
  return text === "" ? null : { kind: isSignature ? "signature" : "encrypted", span, text };
}
