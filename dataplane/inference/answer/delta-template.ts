import { weightOfJson } from "../../dialects/output-estimate.ts";
import { BACKSLASH, QUOTE } from "../../lib/json-bytes.ts";
import { JsonReader, type Span } from "../../lib/json-reader.ts";
import type { SseFrame } from "../../lib/sse.ts";

interface ModelPlace {
  readonly part: number;
  readonly offset: number;
  readonly length: number;
}

/** A string that differs from chunk to chunk. */
type Hole = Span & { readonly isWritten: boolean };

/**
 * The shape of a Chat chunk: fixed bytes around the few strings that differ from chunk to chunk. A chunk with the same
 * fixed bytes, and no unescaped quote within those strings, has the same JSON structure. So it has no finish reason, usage
 * or error either, and nearly all chunks of a stream need not be parsed.
 */
export class DeltaTemplate {
  readonly #fixed: readonly Buffer[];
  /** For each fixed part, whether the string behind it is the model's output. */
  readonly #written: readonly boolean[];
  /** Fixed part that holds the foreign model name, and its offset there. */
  readonly #modelAt: ModelPlace | null;
  /** The foreign model name in the frame that matched last, if there is one. */
  models: readonly Span[] = [];

  private constructor(frame: SseFrame, holes: readonly Hole[], model: Span | null) {
    const { bytes, dataStart, dataEnd } = frame;
    const fixed: Buffer[] = [];
    let at = dataStart;
    let modelAt: ModelPlace | null = null;
    for (const { start, end } of [...holes, { start: dataEnd, end: dataEnd }]) {
      if (model !== null && model.start >= at && model.end <= start)
        modelAt = { part: fixed.length, offset: model.start - at, length: model.end - model.start };
      // Copied, because a slice would keep the whole frame's buffer in memory.
      fixed.push(Buffer.from(bytes.subarray(at, start)));
      at = end;
    }
    this.#fixed = fixed;
    this.#written = holes.map(({ isWritten }) => isWritten);
    this.#modelAt = modelAt;
  }

  /** Learns the shape of a chunk; null: no string in it could differ, or matching it does not give `weight` again. */
  static of(frame: SseFrame, [model]: readonly Span[], weight: number): DeltaTemplate | null {
    const holes: Hole[] = [];
    try {
      const reader = new JsonReader(frame.bytes.subarray(0, frame.dataEnd));
      reader.position = frame.dataStart;
      differing(reader, holes, false);
    } catch {
      return null;
    }
    if (holes.length === 0) return null;
    const template = new DeltaTemplate(frame, holes, model ?? null);
    return template.match(frame) === weight ? template : null;
  }

  /** Returns the weight of the model's output (output-estimate.ts) if the frame has this shape, else -1. */
  match(frame: SseFrame): number {
    const { bytes, dataEnd } = frame;
    const fixed = this.#fixed;
    const last = fixed.length - 1;
    let at = frame.dataStart;
    let weight = 0;
    for (let part = 0; part <= last; part += 1) {
      const expected = fixed[part] as Buffer;
      const { length } = expected;
      if (at + length > dataEnd) return -1;
      if (bytes.compare(expected, 0, length, at, at + length) !== 0) return -1;
      if (this.#modelAt !== null && this.#modelAt.part === part) {
        const start = at + this.#modelAt.offset;
        this.models = [{ start, end: start + this.#modelAt.length }];
      }
      at += length;
      if (part === last) break;
      const start = at;
      while (at < dataEnd && bytes[at] !== QUOTE) at += bytes[at] === BACKSLASH ? 2 : 1;
      if (this.#written[part] === true) weight += weightOfJson(bytes, start, at);
    }
    return at === dataEnd && frame.dataLines === 1 ? weight : -1;
  }
}

/** Top-level strings that stay the same over a stream. */
const steady = new Set(["id", "object", "model", "system_fingerprint", "service_tier", "provider"]);
/** Keys of a delta that hold the model's output. */
const written = new Set([
  "content",
  "reasoning_content",
  "reasoning",
  "refusal",
  "arguments",
  "text",
  "thinking",
]);

/** Finds the contents (without quotes) of the strings that may differ: those within `delta`, and unknown top-level ones. */
function differing(reader: JsonReader, found: Hole[], inDelta: boolean, depth = 0): void {
  const kind = reader.kind();
  if (kind === "array") {
    reader.array(() => differing(reader, found, inDelta, depth + 1));
    return;
  }
  if (kind !== "object") return;
  reader.object((key) => {
    if (reader.kind() !== "string") return differing(reader, found, inDelta || key === "delta", depth + 1);
    const differs = inDelta ? key !== "role" && key !== "type" : depth === 0 && !steady.has(key);
    const start = reader.position + 1;
    reader.skip();
    if (differs) found.push({ start, end: reader.position - 1, isWritten: inDelta && written.has(key) });
  });
}
