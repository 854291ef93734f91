/**
 * What a look notes of the conversation: media (which is not text), references to objects of the upstream account (which
 * no upstream may see, rule 2.10), what only a server tool can have written, tools and reasoning.
 */
import type { Dialect } from "../../dialects/dialect.ts";
import { dialectErrorFamily } from "../../dialects/errors.ts";
import type { BlobPlace } from "../../dialects/reasoning.ts";
import { bodyLimits, limitExceeded } from "../../lib/body-limits.ts";
import type { PathStep } from "../../lib/field-path.ts";
import type { JsonReader, Span } from "../../lib/json-reader.ts";

export type Path = readonly PathStep[];

/** An entry of `tools`, as far as judging it needs. */
export interface ToolEntry extends Span {
  readonly path: readonly PathStep[];
  readonly type: string | null;
  readonly name: string | null;
  /** `external_web_access: false`: counts as not declared (dialects.md §H3). */
  readonly offline: boolean;
  /** A shell in a container of the upstream's. */
  readonly container: boolean;
  /** `execution: "client"`: the client runs what is otherwise run by the provider. */
  readonly clientRun: boolean;
  /** A turn of a Messages conversation brings it (`tool_addition`), where no tool loop looks for declarations. */
  readonly inTurn: boolean;
  /** Everything that stands in the same array, and which of it this is; for cutting it out. */
  readonly siblings: readonly Span[];
  readonly index: number;
}

/** What a provider handed out to be sent back, in a body: the span of its string, quotes included. */
export interface ReasoningBlob extends Span {
  readonly field: BlobPlace["field"];
  /** Where the content block or input item begins that goes with it when it does not open. */
  readonly entryStart: number;
  /** Where it stands in a Messages body, if it is a compaction's: that is not left out. */
  readonly compaction?: Path;
}

/** Something in the content that only the account it was made in can resolve. */
export interface Reference extends Span {
  readonly path: readonly PathStep[];
  readonly kind: "file" | "container" | "item" | "audio";
  /** Empty when it is not a string. */
  readonly id: string;
  /** Where the object begins that holds it; -1: it stands where no file can take its place. */
  readonly objectStart: number;
}

/** A reasoning item that holds nothing anybody could read: its content stayed with whoever made it. */
interface BareReasoning extends Span {
  readonly id: string;
}

/** Facts about the conversation, gathered while its content is read. */
export interface ContentFacts {
  readonly dialect: Dialect;
  /** Content blocks of the message at hand. */
  blocks: number;
  /** Tools so far, wherever they are declared. */
  tools: number;
  /** Bytes of base64 media, which are not text. */
  mediaBytes: number;
  /** Part of `mediaBytes`. */
  audioBytes: number;
  images: number;
  documents: number;
  /** Where the first image and the first PDF stand; a document of text is neither. */
  firstImage: Path | null;
  firstPdf: Path | null;
  firstAudio: Path | null;
  readonly references: Reference[];
  /**
   * Blocks or items that only a server tool of ours can have made, or a summary that we sealed; they are restored,
   * never relayed (rule 3.4).
   */
  serverToolHistory: boolean;
  /** Where the input item begins that is being read; -1: none is. */
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
  /** What a provider handed out to be sent back, in the order of the text. */
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

/** Counts a block of the message at hand. @throws ApiError 400 beyond the limit. */
export function countBlock(facts: ContentFacts, path: Path): void {
  facts.blocks += 1;
  if (facts.blocks > bodyLimits.blocks)
    throw limitExceeded("blocks", dialectErrorFamily[facts.dialect], path);
}

export function countImage(facts: ContentFacts, path: Path): void {
  facts.images += 1;
  facts.firstImage ??= path;
}

export function countDocument(facts: ContentFacts, path: Path, isPdf: boolean): void {
  facts.documents += 1;
  if (isPdf) facts.firstPdf ??= path;
}

/** Length of the value that is skipped. */
export function skipped(reader: JsonReader): number {
  reader.kind();
  const start = reader.position;
  reader.skip();
  return reader.position - start;
}

/** The same when the value holds media itself; an address (`https:…`) is as good as text. */
export function skippedMedia(reader: JsonReader, onlyDataUrl: boolean): number {
  reader.kind();
  const at = reader.position + 1;
  const isData = reader.bytes.toString("latin1", at, at + 5) === "data:";
  const length = skipped(reader);
  return onlyDataUrl && !isData ? 0 : length;
}
