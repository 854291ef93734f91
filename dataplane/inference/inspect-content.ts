/**
 * The part of a look that walks the conversation: media (which is not text), references to objects of the
 * upstream account (which no upstream may see, rule 2.10) and what only a server tool can have written.
 */
import type { Dialect } from "../dialects/dialect.ts";
import { isServerToolName } from "../dialects/find-server-tool.ts";
import { bodyLimits, limitExceeded } from "../lib/body-limits.ts";
import type { PathStep } from "../lib/field-path.ts";
import type { JsonReader, Span } from "../lib/json-reader.ts";
import {
  isBlobKey,
  keepBlockBlobs,
  readBlockBlob,
  type BlockBlob,
  type ReasoningBlob,
} from "./inspect-reasoning.ts";
import { inspectTools, type ToolEntry } from "./inspect-tools.ts";
import {
  addHosted,
  addReference,
  hostedBlocks,
  hostedItems,
  isOurs,
  ownToolBlocks,
  readEncrypted,
  readReference,
  refuseNoList,
  refuseStray,
  searchCalls,
  styleOf,
  walk,
  walkMember,
  type Path,
} from "./inspect-walk.ts";

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
  /** Tools that stand among the input items (Codex' `additional_tools`). */
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
function countBlock(facts: ContentFacts, path: Path): void {
  facts.blocks += 1;
  if (facts.blocks > bodyLimits.blocks) throw limitExceeded("blocks", styleOf(facts.dialect), path);
}

/**
 * The value of a `content`: a list of blocks, or text, which has none.
 * @returns whether it is an object, which some blocks of tools have in its place; it was walked then.
 */
function readContentValue(reader: JsonReader, facts: ContentFacts, path: Path): boolean {
  const kind = reader.kind();
  if (kind === "array") readMessagesContent(reader, facts, path);
  else if (kind === "object") {
    walk(reader, facts, path);
    return true;
  }
  return false;
}

/** A message's content in Messages form. @throws ApiError 400 when it is an object. */
export function readMessageContent(reader: JsonReader, facts: ContentFacts, path: Path): void {
  facts.blocks = 0;
  if (readContentValue(reader, facts, path)) refuseNoList(facts, path);
}

/** Content blocks of Messages form, also those within tool results and documents. */
function readMessagesContent(reader: JsonReader, facts: ContentFacts, path: Path): void {
  reader.array((index) => {
    countBlock(facts, path);
    const kind = reader.kind();
    if (kind === "object") readBlock(reader, facts, [...path, index]);
    else if (kind === "array") walk(reader, facts, [...path, index]);
  });
}

/** Steps to a block that stands in a message itself: only there a server tool's blocks are restored. */
const OWN_DEPTH = 4;

function readBlock(reader: JsonReader, facts: ContentFacts, path: Path): void {
  const start = reader.position;
  let type: string | undefined;
  let toolName: string | undefined;
  let source: string | undefined;
  let contentIsObject = false;
  const restored = path.length === OWN_DEPTH;
  const blobs: BlockBlob[] = [];
  reader.object((key) => {
    if (key === "type") type = reader.string();
    else if (key === "name") toolName = reader.string();
    else if (key === "text") return;
    else if (key === "source" && reader.kind() === "object")
      source = readSource(reader, facts, [...path, key]);
    else if (key === "content") contentIsObject = readContentValue(reader, facts, [...path, key]);
    else if (key === "citations" && reader.kind() === "array")
      readCitations(reader, facts, [...path, key], restored);
    else if (key === "file_id") readReference(reader, facts, "file", [...path, key], start);
    // Inside of a block that is restored the blob is opened and judged when it is restored.
    else if (key === "encrypted_content" && path.length === OWN_DEPTH + 2)
      facts.serverToolHistory ||= isOurs(reader);
    else if (isBlobKey(key) && reader.kind() === "string") {
      const blob = readBlockBlob(reader, facts, key, path);
      if (blob !== null) blobs.push(blob);
    } else walkMember(reader, facts, key, path);
  });
  if (contentIsObject && !(restored && type !== undefined && type.endsWith("_tool_result")))
    refuseNoList(facts, [...path, "content"]);
  keepBlockBlobs(blobs, type, start, facts.reasoningBlobs);
  if (type === "image") countImage(facts, path);
  else if (type === "document") countDocument(facts, path, source === "base64" || source === "url");
  else if (type === undefined) return;
  else if (type === "server_tool_use" && !isServerToolName(toolName)) addHosted(facts, type, path);
  else if (ownToolBlocks.has(type)) {
    if (restored) facts.serverToolHistory = true;
    else addHosted(facts, type, path);
  } else if (type === "web_search_result") facts.serverToolHistory = true;
  else if (hostedBlocks.test(type)) addHosted(facts, type, path);
}

function countImage(facts: ContentFacts, path: Path): void {
  facts.images += 1;
  facts.firstImage ??= path;
}

function countDocument(facts: ContentFacts, path: Path, isPdf: boolean): void {
  facts.documents += 1;
  if (isPdf) facts.firstPdf ??= path;
}

/** @returns the source's type. */
function readSource(reader: JsonReader, facts: ContentFacts, path: Path): string | undefined {
  const start = reader.position;
  let type: string | undefined;
  let dataBytes = 0;
  reader.object((key) => {
    if (key === "type") type = reader.string();
    else if (key === "data") dataBytes = skipped(reader);
    else if (key === "file_id") readReference(reader, facts, "file", [...path, key], start);
    else if (key === "content") {
      if (readContentValue(reader, facts, [...path, key])) refuseNoList(facts, [...path, key]);
    } else walkMember(reader, facts, key, path);
  });
  // A document's plain text is text.
  if (type === "base64") facts.mediaBytes += dataBytes;
  return type;
}

/**
 * A sealed index has to be verified, and must not go upstream (rule 3.4).
 * @param restored the block is one whose blobs are verified when it is restored.
 */
function readCitations(reader: JsonReader, facts: ContentFacts, path: Path, restored: boolean): void {
  reader.array((index) => {
    if (reader.kind() !== "object") return walk(reader, facts, [...path, index]);
    const here = [...path, index];
    reader.object((key) => {
      if (key === "type") {
        if (reader.string() === "web_search_result_location") facts.serverToolHistory = true;
      } else if (key !== "encrypted_index") walkMember(reader, facts, key, here);
      else if (restored) facts.serverToolHistory = true;
      else refuseStray(reader, facts, [...here, key]);
    });
  });
}

/** A Chat message's content. @throws ApiError 400 when it is an object. */
export function readChatContent(reader: JsonReader, facts: ContentFacts, path: Path): void {
  facts.blocks = 0;
  const kind = reader.kind();
  if (kind === "object") refuseNoList(facts, path);
  if (kind !== "array") return;
  reader.array((index) => {
    countBlock(facts, path);
    const here = [...path, index];
    if (reader.kind() !== "object") return walk(reader, facts, here);
    let type: string | undefined;
    let isPdf = false;
    reader.object((key) => {
      if (key === "type") type = reader.string();
      else if (key === "text") return;
      else if (key === "image_url" || key === "file" || key === "input_audio")
        isPdf = readMedia(reader, facts, [...here, key]);
      else walkMember(reader, facts, key, here);
    });
    countMedia(facts, type, here, isPdf);
  });
}

/** A part's media: an address, or an object around it. @returns whether it is a PDF's bytes. */
function readMedia(reader: JsonReader, facts: ContentFacts, path: Path): boolean {
  const kind = reader.kind();
  let isPdf = false;
  if (kind === "string") facts.mediaBytes += skippedMedia(reader, true);
  if (kind === "array") walk(reader, facts, path);
  if (kind !== "object") return false;
  const start = reader.position;
  reader.object((key) => {
    if (key === "file_id") readReference(reader, facts, "file", [...path, key], start);
    else if (key === "url") facts.mediaBytes += skippedMedia(reader, true);
    else if (key === "data" || key === "file_data") {
      isPdf = isPdfData(reader);
      facts.mediaBytes += skippedMedia(reader, false);
    } else walkMember(reader, facts, key, path);
  });
  return isPdf;
}

function countMedia(facts: ContentFacts, type: string | undefined, path: Path, isPdf: boolean): void {
  if (type === undefined) return;
  if (type === "image_url" || type === "input_image" || type === "computer_screenshot")
    countImage(facts, path);
  else if (type === "file" || type === "input_file") countDocument(facts, path, isPdf);
  else if (type === "input_audio") facts.firstAudio ??= path;
  // Nobody but a server tool makes these, and no dialect of these parts knows them.
  else if (
    ownToolBlocks.has(type) ||
    hostedBlocks.test(type) ||
    hostedItems.test(type) ||
    searchCalls.has(type)
  )
    addHosted(facts, type, path);
}

const PDF_DATA = "data:application/pdf";

/** Whether the string ahead is a data URL of a PDF, or bare base64 of one (`%PDF`). */
function isPdfData(reader: JsonReader): boolean {
  reader.kind();
  const at = reader.position + 1;
  const beginning = reader.bytes.toString("latin1", at, at + PDF_DATA.length);
  return beginning === PDF_DATA || beginning.startsWith("JVBERi");
}

/** The items of a Responses `input`. @returns their number. */
export function readResponsesInput(reader: JsonReader, facts: ContentFacts): number {
  return reader.array((index) => {
    if (index === bodyLimits.messages) throw limitExceeded("messages", "openai", ["input"]);
    const kind = reader.kind();
    const start = reader.position;
    facts.blocks = 0;
    if (kind === "object") readItem(reader, facts, index);
    else if (kind === "array") walk(reader, facts, ["input", index]);
    else reader.skip();
    facts.inputItems.push({ start, end: reader.position });
  });
}

function readItem(reader: JsonReader, facts: ContentFacts, index: number): void {
  const path = ["input", index];
  const start = reader.position;
  let type: string | undefined;
  let role: string | undefined;
  let id = "";
  let content = false;
  let parts = 0;
  let encrypted = false;
  facts.itemStart = start;
  reader.object((key) => {
    if (key === "type") type = reader.string();
    else if (key === "encrypted_content" && reader.kind() === "string")
      encrypted = readEncrypted(reader, facts, [...path, key]);
    else if (key === "role") role = reader.string();
    else if (key === "id") id = reader.string() ?? "";
    else if (key === "content" || key === "output") {
      content ||= key === "content";
      parts += readParts(reader, facts, [...path, key]);
    } else if (key === "tools") inspectTools(reader, facts, [...path, key], facts.additionalTools);
    else if (key === "container_id") readReference(reader, facts, "container", [...path, key], start);
    else walkMember(reader, facts, key, path);
  });
  facts.itemStart = -1;
  const span: Span = { start, end: reader.position };
  // The type of a reference may be left out; an item with neither role nor content is nothing else.
  if (type === "item_reference" || (type === undefined && role === undefined && !content))
    addReference(facts, { ...span, path, kind: "item", id, objectStart: start });
  if (role === "user") facts.firstUser ??= span;
  if (type === undefined) return;
  if (type === "reasoning" && !encrypted && parts === 0) facts.bareReasoning.push({ ...span, id });
  else if (searchCalls.has(type)) {
    if (!facts.searchCalls.some((call) => call.type === type)) facts.searchCalls.push({ type, path });
  } else if (ownToolBlocks.has(type) || hostedBlocks.test(type) || hostedItems.test(type))
    addHosted(facts, type, path);
}

/** An array of parts. @returns how many. @throws ApiError 400 for an object. */
function readParts(reader: JsonReader, facts: ContentFacts, path: Path): number {
  const kind = reader.kind();
  if (kind === "object") refuseNoList(facts, path);
  if (kind !== "array") return 0;
  return reader.array((index) => {
    countBlock(facts, path);
    const inner = reader.kind();
    if (inner === "object") readPart(reader, facts, [...path, index]);
    else if (inner === "array") walk(reader, facts, [...path, index]);
  });
}

function readPart(reader: JsonReader, facts: ContentFacts, path: Path): void {
  const start = reader.position;
  let type: string | undefined;
  let isPdf = false;
  reader.object((key) => {
    if (key === "type") type = reader.string();
    else if (key === "text") return;
    else if (key === "file_id") readReference(reader, facts, "file", [...path, key], start);
    else if (key === "image_url" && reader.kind() === "string")
      facts.mediaBytes += skippedMedia(reader, true);
    // What stands at an address is taken for a PDF, as in Messages' `url` sources.
    else if (key === "file_url") isPdf ||= reader.kind() !== "null";
    else if (key === "file_data") {
      isPdf ||= isPdfData(reader);
      facts.mediaBytes += skippedMedia(reader, false);
    } else if (key === "input_audio") readMedia(reader, facts, [...path, key]);
    else walkMember(reader, facts, key, path);
  });
  countMedia(facts, type, path, isPdf);
}

/** Length of the value that is skipped. */
function skipped(reader: JsonReader): number {
  reader.kind();
  const start = reader.position;
  reader.skip();
  return reader.position - start;
}

/** The same when the value holds media itself; an address (`https:…`) is as good as text. */
function skippedMedia(reader: JsonReader, onlyDataUrl: boolean): number {
  reader.kind();
  const at = reader.position + 1;
  const isData = reader.bytes.toString("latin1", at, at + 5) === "data:";
  const length = skipped(reader);
  return onlyDataUrl && !isData ? 0 : length;
}
