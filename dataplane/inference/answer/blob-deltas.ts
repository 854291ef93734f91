import { JsonFault, JsonReader, type Span } from "../../lib/json-reader.ts";
import { replaceValue } from "../../lib/json-splice.ts";
import { frameData, frameName, MAX_EVENT_BYTES, type SseFrame } from "../../lib/sse.ts";
import { blobAhead } from "../inspect/walk.ts";
import { type AnswerSeal, editedFrame } from "./seal-answer.ts";
import { PASS, SWALLOW, type FrameAction } from "./usage-tap.ts";

/** So many characters of a signature are joined: it cannot be longer than one event may be. */
const MAX_SIGNATURE_LENGTH = MAX_EVENT_BYTES;
const SIGNATURE = '"signature_delta"';
const ENCRYPTED = '"encrypted_content"';

/** A delta that hands out something to be sent back. */
interface BlobDelta {
  readonly kind: "signature" | "encrypted";
  /** All places where it stands; of members with one name clients read the last. */
  readonly spans: readonly Span[];
  /** At the last of them. */
  readonly text: string;
}

/** The first event of a signature that is still coming, and what came of it. */
interface Pending {
  readonly frame: SseFrame;
  readonly spans: readonly Span[];
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
    return this.behind(frame, { kind: "replace", bytes: this.#sealed(frame, found) });
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

  #hold(frame: SseFrame, { spans, text }: BlobDelta): FrameAction {
    if (this.#pending === null) {
      // The frame object is used again; its bytes stay.
      this.#pending = { frame: { ...frame }, spans, signature: text };
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

/** null: the delta only speaks of such a thing, or cannot be read. */
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

/** Adds the places of what a delta of its type hands out. */
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
