/**
 * The protocol between the data plane and an extraction child: frames of a JSON head and a body, each preceded by its
 * length, so that ten megabytes pass the pipe unencoded.
 */

/** A page to read; its bytes are the frame's body. */
export interface ExtractionJob {
  readonly kind: "html" | "xml" | "text" | "json";
  /** The charset of the content type header. */
  readonly charset: string | null;
  readonly url: string;
  /** True after a child died over the page: it is read without a DOM this time. */
  readonly plainOnly: boolean;
  /** Longest time for the DOM, milliseconds. */
  readonly domTimeoutMs: number;
}

/** How the page was read; its text, UTF-8, is the frame's body. */
export interface ExtractionHead {
  readonly title: string | null;
  /** `markdown` from a DOM, `plain` without one, `verbatim` for text that is passed unchanged. */
  readonly mode: "markdown" | "plain" | "verbatim";
  /** The child's memory afterwards, bytes. */
  readonly rss: number;
}

const LENGTHS = 8;
/** Largest frame: pages are at most 10 MB, and their text is hardly larger. */
const MAX_FRAME_BYTES = 64 * 1024 * 1024;

/** Writes a frame; the pieces are sent one after the other. */
export function encodeFrame(head: unknown, body: Uint8Array): readonly Uint8Array[] {
  const text = Buffer.from(JSON.stringify(head));
  const lengths = Buffer.alloc(LENGTHS);
  lengths.writeUInt32BE(text.length, 0);
  lengths.writeUInt32BE(body.length, 4);
  return [lengths, text, body];
}

/** Collects chunks until a frame is complete. */
export class FrameReader {
  #chunks: Buffer[] = [];
  #size = 0;
  #wanted = LENGTHS;

  /** Returns the frame that the chunk completes. @throws when a frame is too large, which only a broken peer sends. */
  push(chunk: Buffer): { head: unknown; body: Buffer } | null {
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    if (this.#size < this.#wanted) return null;
    const all = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks);
    this.#chunks = [all];
    const headEnd = LENGTHS + all.readUInt32BE(0);
    this.#wanted = headEnd + all.readUInt32BE(4);
    if (this.#wanted > MAX_FRAME_BYTES) throw new Error("frame too large");
    if (all.length < this.#wanted) return null;
    const frame = {
      head: JSON.parse(all.toString("utf8", LENGTHS, headEnd)),
      body: all.subarray(headEnd, this.#wanted),
    };
    const rest = all.subarray(this.#wanted);
    this.#chunks = rest.length === 0 ? [] : [rest];
    this.#size = rest.length;
    this.#wanted = LENGTHS;
    return frame;
  }
}
