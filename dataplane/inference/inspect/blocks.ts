/** Inspects content blocks of Messages form. */
import { documentCitations } from "../../dialects/cited-files.ts";
import { isServerToolName } from "../../dialects/find-server-tool.ts";
import type { JsonReader, Span } from "../../lib/json-reader.ts";
import { replaceValue } from "../../lib/json-splice.ts";
import { countBlock, countDocument, countImage, skipped, type ContentFacts, type Path } from "./content.ts";
import { inspectToolChange } from "./tools.ts";
import { isBlobKey, keepBlockBlobs, readBlockBlob, type BlockBlob } from "./reasoning.ts";
import {
  addHosted,
  addReference,
  editCitedFile,
  hostedBlocks,
  isOurs,
  ownToolBlocks,
  readReference,
  refuseNoList,
  refuseStray,
  walk,
  walkMember,
} from "./walk.ts";

/**
 * Reads the value of a `content`: a list of blocks, or text, which has none.
 * @returns whether it is an object, as in some tool blocks; it was walked then.
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

/** Reads a message's content in Messages form. @throws ApiError 400 when it is an object. */
export function readMessageContent(reader: JsonReader, facts: ContentFacts, path: Path): void {
  facts.blocks = 0;
  if (readContentValue(reader, facts, path)) refuseNoList(facts, path);
}

/** Reads content blocks of Messages form, also those within tool results and documents. */
function readMessagesContent(reader: JsonReader, facts: ContentFacts, path: Path): void {
  reader.array((index) => {
    countBlock(facts, path);
    const kind = reader.kind();
    if (kind === "object") readBlock(reader, facts, [...path, index]);
    else if (kind === "array") walk(reader, facts, [...path, index]);
  });
}

/** Path length of a block that stands in a message itself: only there server-tool blocks are restored. */
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
    else if (key === "tool" && (reader.kind() === "object" || reader.kind() === "array"))
      inspectToolChange(reader, facts, [...path, key]);
    // Tool changes of the turns that a compaction replaced.
    else if (key === "tool_changes") {
      if (readContentValue(reader, facts, [...path, key])) refuseNoList(facts, [...path, key]);
    }
    // A blob inside of a restored block is opened and verified when the block is restored.
    else if (key === "encrypted_content" && path.length === OWN_DEPTH + 2)
      facts.serverToolHistory ||= isOurs(reader);
    else if (isBlobKey(key) && reader.kind() === "string") {
      const blob = readBlockBlob(reader, facts, key, path);
      if (blob !== null) blobs.push(blob);
    } else walkMember(reader, facts, key, path);
  });
  if (contentIsObject && !(restored && type !== undefined && type.endsWith("_tool_result")))
    refuseNoList(facts, [...path, "content"]);
  keepBlockBlobs(blobs, type, start, facts.reasoningBlobs, path);
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
  // The data of a plain-text source is text.
  if (type === "base64") facts.mediaBytes += dataBytes;
  return type;
}

/**
 * Finds sealed indexes, which have to be verified and must not go upstream (rule 3.4).
 * @param restored the block is one whose blobs are verified when it is restored.
 */
function readCitations(reader: JsonReader, facts: ContentFacts, path: Path, restored: boolean): void {
  reader.array((index) => {
    const here = [...path, index];
    if (reader.kind() === "object") readCitation(reader, facts, here, restored);
    else walk(reader, facts, here);
  });
}

function readCitation(reader: JsonReader, facts: ContentFacts, path: Path, restored: boolean): void {
  let type: string | undefined;
  let file = null as (Span & { readonly id: string }) | null;
  reader.object((key) => {
    if (key === "type") type = reader.string();
    else if (key === "file_id" && reader.kind() === "string") {
      const start = reader.position;
      const id = reader.string() ?? "";
      file = { start, end: reader.position, id };
    } else if (key !== "encrypted_index") walkMember(reader, facts, key, path);
    else if (restored) facts.serverToolHistory = true;
    else refuseStray(reader, facts, [...path, key]);
  });
  if (type === "web_search_result_location") facts.serverToolHistory = true;
  if (file === null) return;
  // Only a text of the conversation itself is written anew without it.
  if (restored && documentCitations.has(type)) editCitedFile(facts, replaceValue(file, "null"), path);
  else addReference(facts, { ...file, path: [...path, "file_id"], kind: "file", objectStart: -1 });
}
