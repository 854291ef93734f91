/**
 * The part of a look that walks the conversation: media (which is not text), references to objects of the
 * upstream account (which no upstream may see, rule 2.10) and what only a server tool can have written.
 */
import type { PathStep } from "../lib/field-path.ts";
import type { JsonReader, Span } from "../lib/json-reader.ts";
import { readTools, type ToolEntry } from "./look-tools.ts";

type Path = readonly PathStep[];

/** Something in the content that only the account it was made in can resolve. */
export interface Reference extends Span {
  readonly path: readonly PathStep[];
  readonly kind: "file" | "container" | "item" | "audio";
  /** Empty when it is not a string. */
  readonly id: string;
  /** Where the object begins that holds it. */
  readonly objectStart: number;
}

/** A reasoning item that holds nothing anybody could read: its content stayed with whoever made it. */
interface BareReasoning extends Span {
  readonly id: string;
  /** Which of the input items it is. */
  readonly index: number;
}

/** Facts about the conversation, gathered while its content is read. */
export interface ContentFacts {
  /** Bytes of base64 media, which are not text. */
  mediaBytes: number;
  images: number;
  documents: number;
  /** Where the first image and the first PDF stand; a document of text is neither. */
  firstImage: Path | null;
  firstPdf: Path | null;
  readonly references: Reference[];
  /** Blocks or items that only a server tool of ours can have made; they are restored, never relayed (rule 3.4). */
  serverToolHistory: boolean;
  /** Search calls standing in a Responses input, by type. */
  readonly searchCalls: { type: string; path: readonly PathStep[] }[];
  /** Blocks or items of tools that a provider runs itself. */
  readonly hosted: { type: string; path: readonly PathStep[] }[];
  /** Tools that stand among the input items (Codex' `additional_tools`). */
  readonly additionalTools: ToolEntry[];
  /** The items of a Responses input, and those of them that are reasoning without content. */
  readonly inputItems: Span[];
  readonly bareReasoning: BareReasoning[];
  /** Bytes that tell conversations apart: the first user message. */
  firstUser: Span | null;
}

export const noFacts = (): ContentFacts => ({
  mediaBytes: 0,
  images: 0,
  documents: 0,
  firstImage: null,
  firstPdf: null,
  references: [],
  serverToolHistory: false,
  searchCalls: [],
  hosted: [],
  additionalTools: [],
  inputItems: [],
  bareReasoning: [],
  firstUser: null,
});

/** Blocks that our own server tools write; they are turned back into tool results, never relayed (rule 3.4). */
const ownToolBlocks = new Set(["server_tool_use", "web_search_tool_result", "web_fetch_tool_result"]);
/** Blocks of tools that run at the provider, or in its containers. */
const hostedBlocks =
  /^(?:mcp_tool_(?:use|result)|container_upload|(?:\w+_)?code_execution_tool_result|tool_search_tool_result|advisor_tool_result)$/;
/** Input items of tools that run at the provider. */
const hostedItems =
  /^(?:file_search_call|code_interpreter_call|image_generation_call|mcp_\w+|computer_call|computer_call_output)$/;
const searchCalls = new Set(["web_search_call", "x_search_call"]);

/** Content blocks of Messages form, also those within tool results and documents. */
export function readMessagesContent(reader: JsonReader, facts: ContentFacts, path: Path): void {
  reader.array((index) => {
    if (reader.kind() === "object") readBlock(reader, facts, [...path, index]);
  });
}

function readBlock(reader: JsonReader, facts: ContentFacts, path: Path): void {
  const start = reader.position;
  let type: string | undefined;
  let toolName: string | undefined;
  let source: string | undefined;
  reader.object((key) => {
    if (key === "type") type = reader.string();
    else if (key === "name") toolName = reader.string();
    else if (key === "source" && reader.kind() === "object")
      source = readSource(reader, facts, [...path, key]);
    else if (key === "content" && reader.kind() === "array")
      readMessagesContent(reader, facts, [...path, key]);
    else if (key === "citations" && reader.kind() === "array") readCitations(reader, facts);
    else if (key === "file_id") readReference(reader, facts, "file", [...path, key], start);
  });
  if (type === "image") countImage(facts, path);
  else if (type === "document") countDocument(facts, path, source === "base64" || source === "url");
  else if (type === undefined) return;
  else if (type === "server_tool_use" && !isOwnTool(toolName)) facts.hosted.push({ type, path });
  else if (ownToolBlocks.has(type)) facts.serverToolHistory = true;
  else if (hostedBlocks.test(type)) facts.hosted.push({ type, path });
}

const isOwnTool = (name: string | undefined) =>
  name === "web_search" || name === "web_fetch" || name === "x_search";

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
    else if (key === "content" && reader.kind() === "array")
      readMessagesContent(reader, facts, [...path, key]);
  });
  // A document's plain text is text.
  if (type === "base64") facts.mediaBytes += dataBytes;
  return type;
}

/** A sealed index has to be verified, and must not go upstream (rule 3.4). */
function readCitations(reader: JsonReader, facts: ContentFacts): void {
  reader.array(() => {
    if (reader.kind() !== "object") return;
    reader.object((key) => {
      const isOwn =
        key === "encrypted_index" || (key === "type" && reader.string() === "web_search_result_location");
      if (isOwn) facts.serverToolHistory = true;
    });
  });
}

/** Content parts of a Chat message. */
export function readChatContent(reader: JsonReader, facts: ContentFacts, path: Path): void {
  reader.array((index) => {
    if (reader.kind() !== "object") return;
    let type: string | undefined;
    let isPdf = false;
    const here = [...path, index];
    reader.object((key) => {
      if (key === "type") type = reader.string();
      else if (key === "image_url" || key === "file" || key === "input_audio")
        isPdf = readMedia(reader, facts, [...here, key]);
    });
    countMedia(facts, type, here, isPdf);
  });
}

/** A part's media: an address, or an object around it. @returns whether it is a PDF's bytes. */
function readMedia(reader: JsonReader, facts: ContentFacts, path: Path): boolean {
  const kind = reader.kind();
  let isPdf = false;
  if (kind === "string") facts.mediaBytes += skippedMedia(reader, true);
  if (kind !== "object") return false;
  const start = reader.position;
  reader.object((key) => {
    if (key === "file_id") readReference(reader, facts, "file", [...path, key], start);
    else if (key === "url") facts.mediaBytes += skippedMedia(reader, true);
    else if (key === "data" || key === "file_data") {
      isPdf = isPdfData(reader);
      facts.mediaBytes += skippedMedia(reader, false);
    }
  });
  return isPdf;
}

function countMedia(facts: ContentFacts, type: string | undefined, path: Path, isPdf: boolean): void {
  if (type === "image_url" || type === "input_image" || type === "computer_screenshot")
    countImage(facts, path);
  else if (type === "file" || type === "input_file" || type === "input_audio")
    countDocument(facts, path, isPdf);
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
    const isItem = reader.kind() === "object";
    const start = reader.position;
    if (isItem) readItem(reader, facts, index);
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
  reader.object((key) => {
    if (key === "type") type = reader.string();
    else if (key === "encrypted_content") encrypted = reader.kind() === "string";
    else if (key === "role") role = reader.string();
    else if (key === "id") id = reader.string() ?? "";
    else if (key === "content" || key === "output") {
      content ||= key === "content";
      parts += readParts(reader, facts, [...path, key]);
    } else if (key === "tools") readTools(reader, [...path, key], facts.additionalTools);
    else if (key === "container_id") readReference(reader, facts, "container", [...path, key], start);
  });
  const span: Span = { start, end: reader.position };
  // The type of a reference may be left out; an item with neither role nor content is nothing else.
  if (type === "item_reference" || (type === undefined && role === undefined && !content))
    facts.references.push({ ...span, path, kind: "item", id, objectStart: start });
  if (role === "user") facts.firstUser ??= span;
  if (type === undefined) return;
  if (type === "reasoning" && !encrypted && parts === 0) facts.bareReasoning.push({ ...span, id, index });
  else if (searchCalls.has(type)) facts.searchCalls.push({ type, path });
  else if (hostedItems.test(type)) facts.hosted.push({ type, path });
}

/** An array of parts, or (a screenshot) one. @returns how many. */
function readParts(reader: JsonReader, facts: ContentFacts, path: Path): number {
  const kind = reader.kind();
  if (kind === "object") readPart(reader, facts, path);
  if (kind !== "array") return kind === "object" ? 1 : 0;
  return reader.array((index) => {
    if (reader.kind() === "object") readPart(reader, facts, [...path, index]);
  });
}

function readPart(reader: JsonReader, facts: ContentFacts, path: Path): void {
  const start = reader.position;
  let type: string | undefined;
  let isPdf = false;
  reader.object((key) => {
    if (key === "type") type = reader.string();
    else if (key === "file_id") readReference(reader, facts, "file", [...path, key], start);
    else if (key === "image_url") facts.mediaBytes += skippedMedia(reader, true);
    // What stands at an address is taken for a PDF, as in Messages' `url` sources.
    else if (key === "file_url") isPdf ||= reader.kind() !== "null";
    else if (key === "file_data") {
      isPdf ||= isPdfData(reader);
      facts.mediaBytes += skippedMedia(reader, false);
    } else if (key === "input_audio") readMedia(reader, facts, [...path, key]);
  });
  countMedia(facts, type, path, isPdf);
}

function readReference(
  reader: JsonReader,
  facts: ContentFacts,
  kind: Reference["kind"],
  path: Path,
  objectStart: number,
): void {
  if (reader.kind() === "null") return;
  const start = reader.position;
  const id = reader.string() ?? "";
  facts.references.push({ start, end: reader.position, path, kind, id, objectStart });
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
