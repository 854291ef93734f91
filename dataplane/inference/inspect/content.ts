/**
 * Facts of the conversation: media (which is not text), references to objects of the upstream account (which no
 * upstream may see, rule 2.10), content that only a server tool can have written, tools and reasoning.
 */
import type { Dialect } from "../../dialects/dialect.ts";
import { dialectErrorFamily } from "../../dialects/errors.ts";
import type { BlobPlace } from "../../dialects/reasoning.ts";
import { bodyLimits, limitExceeded } from "../../lib/body-limits.ts";
import type { PathStep } from "../../lib/field-path.ts";
import type { JsonReader, Span } from "../../lib/json-reader.ts";
import type { Edit } from "../../lib/json-splice.ts";

export type Path = readonly PathStep[];

/** A declared tool, as far as refusals and edits need it. */
export interface ToolEntry extends Span {
  readonly path: readonly PathStep[];
  readonly type: string | null;
  readonly name: string | null;
  /** `external_web_access: false`: counts as not declared (dialects.md §H3). */
  readonly offline: boolean;
  /** Whether it is a shell in a container of the upstream. */
  readonly container: boolean;
  /** `execution: "client"`: the client runs what is otherwise run by the provider. */
  readonly clientRun: boolean;
  /** Whether a turn of a Messages conversation declares it (`tool_addition`), where no tool loop looks for declarations. */
  readonly inTurn: boolean;
  /** All entries of its array, and its index among them; for cutting it out. */
  readonly siblings: readonly Span[];
  readonly index: number;
}

/** A provider's blob (a signature, redacted or encrypted content) in a body: the span of its string, quotes included. */
export interface ReasoningBlob extends Span {
  readonly field: BlobPlace["field"];
  /** Start of the content block or input item that is left out with it when it does not open. */
  readonly entryStart: number;
  /** Path in a Messages body, if it is a compaction's, which is not left out. */
  readonly compaction?: Path;
}

/** Something in the content that only the account it was made in can resolve. */
export interface Reference extends Span {
  readonly path: readonly PathStep[];
  readonly kind: "file" | "container" | "item" | "audio";
  /** Empty when it is not a string. */
  readonly id: string;
  /** Start of the object that holds it; -1: no file can take its place. */
  readonly objectStart: number;
}

/** A reasoning item that holds nothing readable: its content stayed with the upstream that made it. */
interface BareReasoning extends Span {
  readonly id: string;
}

/** Facts of the conversation, gathered while its content is read. */
export interface ContentFacts {
  readonly dialect: Dialect;
  /** Content blocks of the current message so far. */
  blocks: number;
  /** Tools so far, wherever they are declared. */
  tools: number;
  /** Bytes of base64 media, which are not text. */
  mediaBytes: number;
  /** Part of `mediaBytes`. */
  audioBytes: number;
  images: number;
  documents: number;
  /** Paths of the first image, PDF and audio; a document of text is none of them. */
  firstImage: Path | null;
  firstPdf: Path | null;
  firstAudio: Path | null;
  readonly references: Reference[];
  /** Edits of earlier answers' citations of files (cited-files.ts). */
  readonly citedFiles: Edit[];
  /**
   * Whether there are blocks or items that only a server tool of ours can have made, or a summary that we sealed; they
   * are restored, never relayed (rule 3.4).
   */
  serverToolHistory: boolean;
  /** Start of the input item that is being read; -1: none is. */
  itemStart: number;
  /** Search calls standing in a Responses input, the first of each type. */
  readonly searchCalls: { type: string; path: readonly PathStep[] }[];
  /** The first block or item of a tool that a provider runs itself. */
  readonly hosted: { type: string; path: readonly PathStep[] }[];
  /** Tools that stand in the conversation: Codex' `additional_tools` items, `tool_addition` blocks of Messages. */
  readonly additionalTools: ToolEntry[];
  /** The items of a Responses input, and those of them that are reasoning without content. */
  readonly inputItems: Span[];
  readonly bareReasoning: BareReasoning[];
  /** Providers' blobs, in the order of the text. */
  readonly reasoningBlobs: ReasoningBlob[];
  /** Bytes that tell conversations apart: the first user message. */
  firstUser: Span | null;
}

export const noFacts = (dialect: Dialect): ContentFacts => ({
  dialect,
  blocks: 0,
  tools: 0,
  mediaBytes: 0,
  audioBytes: 0,
  images: 0,
  documents: 0,
  firstImage: null,
  firstPdf: null,
  firstAudio: null,
  references: [],
  citedFiles: [],
  serverToolHistory: false,
  itemStart: -1,
  searchCalls: [],
  hosted: [],
  additionalTools: [],
  inputItems: [],
  bareReasoning: [],
  reasoningBlobs: [],
  firstUser: null,
});

/** Counts a block of the current message. @throws ApiError 400 beyond the limit. */
export function countBlock(facts: ContentFacts, path: Path): void {
  facts.blocks += 1;
  if (facts.blocks > bodyLimits.blocks)
    throw limitExceeded("blocks", dialectErrorFamily[facts.dialect], path);
}

/** Counts an image, and remembers where the first one stands. */
export function countImage(facts: ContentFacts, path: Path): void {
  facts.images += 1;
  facts.firstImage ??= path;
}

/** Counts a document, and remembers where the first PDF stands. */
export function countDocument(facts: ContentFacts, path: Path, isPdf: boolean): void {
  facts.documents += 1;
  if (isPdf) facts.firstPdf ??= path;
}

/** Skips a value and returns its length. */
export function skipped(reader: JsonReader): number {
  reader.kind();
  const start = reader.position;
  reader.skip();
  return reader.position - start;
}

/** The same for a value that may be media. With `onlyDataUrl`, an address (`https:…`) counts as text: 0. */
export function skippedMedia(reader: JsonReader, onlyDataUrl: boolean): number {
  reader.kind();
  const at = reader.position + 1;
  const isData = reader.bytes.toString("latin1", at, at + 5) === "data:";
  const length = skipped(reader);
  return onlyDataUrl && !isData ? 0 : length;
}
