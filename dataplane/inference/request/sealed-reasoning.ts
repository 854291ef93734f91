/**
 * Opens a provider's reasoning that clients send back to an upstream of their own dialect (rule 7.12). What does not
 * open for this very organization is left out with its content block or input item, which nobody else can read; what
 * never was sealed goes to its own account alone. That is no 400 (rule 2.17): a turn stays without its reasoning, also
 * before a tool's call, which upstreams accept of adaptive thinking and of items that nobody stored. A compaction alone
 * is 400.
 */
import type { Sealer } from "../../dialects/codecs.ts";
import { openBlob, unreadCompaction } from "../../dialects/reasoning.ts";
import { corruptAnswer } from "../../dialects/upstream-error.ts";
import { ApiError } from "../../lib/api-error.ts";
import { BODY_LIMIT, bodyLimits } from "../../lib/body-limits.ts";
import { fieldPath } from "../../lib/field-path.ts";
import { JsonReader, type Span } from "../../lib/json-reader.ts";
import { type Edit, removeEntries, replaceValue } from "../../lib/json-splice.ts";
import type { Inspection } from "../inspect/body.ts";
import type { ReasoningBlob } from "../inspect/content.ts";

/** Most bytes that the blobs of one body may open to: the limit of a body, as a small blob may be sent many times. */
export const MAX_OPENED_BYTES = bodyLimits.bytes;

/** A blob of a request, opened. */
export interface OpenedReasoning extends ReasoningBlob {
  /** Whether it was never sealed: only an account of the organization's own may get it. */
  readonly raw: boolean;
  /** The provider's own; null: it does not open, or another dialect's upstream made it. */
  readonly blob: string | null;
}

/**
 * Makes a sealer for one request, which opens no more than MAX_OPENED_BYTES in all.
 * @throws ApiError 413 from `open` beyond that.
 */
export function boundedSealer(sealer: Sealer): Sealer {
  let left = MAX_OPENED_BYTES;
  return {
    seal: (plain) => sealer.seal(plain),
    open: (sealed) => {
      if (left < 0)
        throw new ApiError("too_large", `The sealed contents of the request are larger than ${BODY_LIMIT}`);
      const plain = sealer.open(sealed);
      left -= plain === null ? 0 : Buffer.byteLength(plain);
      return plain;
    },
  };
}

/**
 * Most blobs of one answer that are sealed: each takes some fifty microseconds, and no model's answer has half as many pieces of
 * reasoning.
 */
export const MOST_SEALED = 512;

/** Makes a sealer for one answer, which seals no more than MOST_SEALED blobs. @throws ApiError upstream_error from `seal` beyond that. */
export function fewSeals(sealer: Sealer): Sealer {
  let left = MOST_SEALED;
  return {
    seal: (plain) => {
      left -= 1;
      if (left < 0) throw corruptAnswer("more reasoning in it than in any answer");
      return sealer.seal(plain);
    },
    open: (sealed) => sealer.open(sealed),
  };
}

/** Opens every blob of a request. @throws ApiError 413 as `boundedSealer` does. */
export function openRequestReasoning(
  { dialect, body, content }: Pick<Inspection, "dialect" | "body" | "content">,
  sealer: Sealer,
): readonly OpenedReasoning[] {
  // Chat has no reasoning that anybody verifies.
  if (dialect === "chat" || content.reasoningBlobs.length === 0) return [];
  const bounded = boundedSealer(sealer);
  return content.reasoningBlobs.map((found) => {
    const text = JSON.parse(body.toString("utf8", found.start, found.end)) as string;
    return { ...found, ...openBlob({ dialect, field: found.field, id: "" }, text, bounded) };
  });
}

/** Edits of a request's reasoning for one upstream. */
export interface ReasoningEdits {
  readonly edits: readonly Edit[];
  /** Starts of the content blocks or input items that have to go. */
  readonly gone: ReadonlySet<number>;
}

const noEdits: ReasoningEdits = { edits: [], gone: new Set() };

/**
 * @param ownAccount the upstream serves this organization alone: what was never sealed may go there.
 * @throws ApiError 400 for a compaction of Messages that may not go there.
 */
export function reasoningEdits(opened: readonly OpenedReasoning[], ownAccount: boolean): ReasoningEdits {
  // Most requests.
  if (opened.length === 0) return noEdits;
  const gone = new Set<number>();
  const edits: Edit[] = [];
  for (const one of opened) {
    if (one.blob === null || (one.raw && !ownAccount)) {
      if (one.compaction !== undefined)
        throw unreadCompaction("messages", fieldPath("messages", one.compaction));
      gone.add(one.entryStart);
    } else if (!one.raw) edits.push(replaceValue(one, JSON.stringify(one.blob)));
  }
  return { edits, gone };
}

/** Removes content blocks from a Messages body, by their starts. Turns that would be left empty are removed whole. */
export function withoutBlocks(body: Buffer, gone: ReadonlySet<number>): Edit[] {
  const edits: Edit[] = [];
  if (gone.size === 0) return edits;
  JsonReader.whole(body, (reader) =>
    reader.object((key) => {
      if (key === "messages" && reader.kind() === "array") turnEdits(reader, gone, edits);
      else if (key === "system") nestedEdits(reader, gone, edits);
    }),
  );
  return edits;
}

function turnEdits(reader: JsonReader, gone: ReadonlySet<number>, edits: Edit[]): void {
  const turns: Span[] = [];
  const emptied = new Set<number>();
  reader.array((index) => {
    const isTurn = reader.kind() === "object";
    const start = reader.position;
    if (isTurn)
      reader.object((key) => {
        if (nestedEdits(reader, gone, edits) && key === "content") emptied.add(index);
      });
    else reader.skip();
    turns.push({ start, end: reader.position });
  });
  append(
    edits,
    removeEntries(turns, (index) => emptied.has(index)),
  );
}

/** Removes blocks within the value ahead, at any depth. @returns whether it is an array that is left without entries. */
function nestedEdits(reader: JsonReader, gone: ReadonlySet<number>, edits: Edit[]): boolean {
  const kind = reader.kind();
  if (kind === "object")
    reader.object(() => {
      nestedEdits(reader, gone, edits);
    });
  if (kind !== "array") return false;
  const entries: Span[] = [];
  const out = new Set<number>();
  reader.array((index) => {
    reader.kind();
    const start = reader.position;
    nestedEdits(reader, gone, edits);
    if (reader.position === start) reader.skip();
    entries.push({ start, end: reader.position });
    if (gone.has(start)) out.add(index);
  });
  if (out.size > 0)
    append(
      edits,
      removeEntries(entries, (index) => out.has(index)),
    );
  return out.size > 0 && out.size === entries.length;
}

/** Adds edits one by one: as arguments of one call they might not fit the stack. */
const append = (edits: Edit[], more: readonly Edit[]): void => {
  for (const edit of more) edits.push(edit);
};
