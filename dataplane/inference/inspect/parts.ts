/** Inspects the content parts of Chat, and the items and parts of Responses. */
import { fileAnnotations } from "../../dialects/cited-files.ts";
import { bodyLimits, limitExceeded } from "../../lib/body-limits.ts";
import type { JsonReader, Span } from "../../lib/json-reader.ts";
import { removeEntries } from "../../lib/json-splice.ts";
import {
  countBlock,
  countDocument,
  countImage,
  skippedMedia,
  type ContentFacts,
  type Path,
} from "./content.ts";
import { inspectTools } from "./tools.ts";
import {
  addHosted,
  addReference,
  editCitedFile,
  hostedBlocks,
  hostedItems,
  ownToolBlocks,
  readEncrypted,
  readReference,
  refuseNoList,
  searchCalls,
  walk,
  walkMember,
} from "./walk.ts";

/** Reads a Chat message's content. @throws ApiError 400 when it is an object. */
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
    let file: FileKind = "other";
    reader.object((key) => {
      if (key === "type") type = reader.string();
      else if (key === "text") return;
      else if (key === "image_url" || key === "file" || key === "input_audio")
        file = graver(file, readMedia(reader, facts, [...here, key]));
      else walkMember(reader, facts, key, here);
    });
    countMedia(facts, type, here, file);
  });
}

/** Reads a part's media: an address, or an object around it. @returns the kind of the file in it. */
function readMedia(reader: JsonReader, facts: ContentFacts, path: Path): FileKind {
  const kind = reader.kind();
  let file: FileKind = "other";
  if (kind === "string") facts.mediaBytes += skippedMedia(reader, true);
  if (kind === "array") walk(reader, facts, path);
  if (kind !== "object") return file;
  const start = reader.position;
  reader.object((key) => {
    if (key === "file_id") readReference(reader, facts, "file", [...path, key], start);
    else if (key === "url") facts.mediaBytes += skippedMedia(reader, true);
    else if (key === "data" || key === "file_data") {
      const held = fileKind(reader);
      file = graver(file, held);
      const bytes = skippedMedia(reader, false);
      facts.mediaBytes += bytes;
      if (held === "audio" || path.at(-1) === "input_audio") facts.audioBytes += bytes;
    } else walkMember(reader, facts, key, path);
  });
  return file;
}

function countMedia(facts: ContentFacts, type: string | undefined, path: Path, file: FileKind): void {
  if (type === undefined) return;
  if (type === "image_url" || type === "input_image" || type === "computer_screenshot")
    countImage(facts, path);
  else if (type === "file" || type === "input_file") countFile(facts, path, file);
  else if (type === "input_audio") facts.firstAudio ??= path;
  // Only server tools make these, and neither Chat nor Responses has them as parts.
  else if (
    ownToolBlocks.has(type) ||
    hostedBlocks.test(type) ||
    hostedItems.test(type) ||
    searchCalls.has(type)
  )
    addHosted(facts, type, path);
}

/** Counts a file by its data, whatever the type of its part. */
function countFile(facts: ContentFacts, path: Path, file: FileKind): void {
  if (file === "image") return countImage(facts, path);
  if (file === "audio") facts.firstAudio ??= path;
  else countDocument(facts, path, file === "pdf");
}

/** Kinds of files: each is read by fewer models than the one before; audio has a price of its own. */
const fileKinds = ["other", "pdf", "image", "audio"] as const;
type FileKind = (typeof fileKinds)[number];

/** Returns the kind that fewer models can read, by which a part with several files is judged. */
const graver = (one: FileKind, other: FileKind): FileKind =>
  fileKinds.indexOf(one) < fileKinds.indexOf(other) ? other : one;

const dataUrls: readonly (readonly [beginning: string, kind: FileKind])[] = [
  ["data:application/pdf", "pdf"],
  ["data:image/", "image"],
  ["data:audio/", "audio"],
];
/** Bytes of the longest one, with each of its characters escaped. */
const BEGINNING_BYTES = 6 * "data:application/pdf".length;

/** Returns the kind of the file ahead, by its data URL or the bare base64 of a PDF (`%PDF`). */
function fileKind(reader: JsonReader): FileKind {
  reader.kind();
  const at = reader.position + 1;
  const beginning = unescaped(reader.bytes.toString("latin1", at, at + BEGINNING_BYTES));
  if (beginning.startsWith("JVBERi")) return "pdf";
  // Media types ignore letter case.
  const url = beginning.toLowerCase();
  return dataUrls.find(([start]) => url.startsWith(start))?.[1] ?? "other";
}

/** Decodes the escapes in the beginning of a JSON string, as far as a data URL may have them. */
const unescaped = (json: string): string =>
  json.replaceAll(/\\(?:u([\da-f]{4})|\/)/gi, (_, unit?: string) =>
    unit === undefined ? "/" : String.fromCharCode(Number.parseInt(unit, 16)),
  );

/** Reads the items of a Responses `input`. @returns their number. */
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
  let outputIsObject = false;
  facts.itemStart = start;
  reader.object((key) => {
    if (key === "type") type = reader.string();
    else if (key === "encrypted_content" && reader.kind() === "string")
      encrypted = readEncrypted(reader, facts, [...path, key]);
    else if (key === "role") role = reader.string();
    else if (key === "id") id = reader.string() ?? "";
    else if (key === "output" && reader.kind() === "object") {
      outputIsObject = true;
      reader.skip();
    } else if (key === "content" || key === "output") {
      content ||= key === "content";
      parts += readParts(reader, facts, [...path, key]);
    } else if (key === "tools") inspectTools(reader, facts, [...path, key], facts.additionalTools);
    else if (key === "container_id") readReference(reader, facts, "container", [...path, key], start);
    else walkMember(reader, facts, key, path);
  });
  facts.itemStart = -1;
  // A hosted computer's screenshot is an object; its item is refused for its type.
  if (outputIsObject && !(type !== undefined && hostedItems.test(type)))
    refuseNoList(facts, [...path, "output"]);
  const span: Span = { start, end: reader.position };
  // An item reference may lack its type: then it is the item with neither role nor content.
  if (type === "item_reference" || (type === undefined && role === undefined && !content))
    addReference(facts, { ...span, path, kind: "item", id, objectStart: start });
  if (role === "user") facts.firstUser ??= span;
  if (type === undefined) return;
  if (type === "reasoning" && !encrypted && parts === 0) facts.bareReasoning.push({ ...span, id });
  else if (searchCalls.has(type)) {
    if (!facts.searchCalls.some((call) => call.type === type)) facts.searchCalls.push({ type, path });
    facts.serverToolHistory = true;
  } else if (ownToolBlocks.has(type) || hostedBlocks.test(type) || hostedItems.test(type))
    addHosted(facts, type, path);
}

/** Reads an array of parts. @returns how many. @throws ApiError 400 for an object. */
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
  let file: FileKind = "other";
  reader.object((key) => {
    if (key === "type") type = reader.string();
    else if (key === "text") return;
    else if (key === "file_id") readReference(reader, facts, "file", [...path, key], start);
    else if (key === "image_url" && reader.kind() === "string")
      facts.mediaBytes += skippedMedia(reader, true);
    // A file at an address counts as a PDF, as in Messages' `url` sources.
    else if (key === "file_url") {
      if (reader.kind() !== "null") file = graver(file, "pdf");
    } else if (key === "file_data") {
      const kind = fileKind(reader);
      file = graver(file, kind);
      const bytes = skippedMedia(reader, false);
      facts.mediaBytes += bytes;
      if (kind === "audio") facts.audioBytes += bytes;
    } else if (key === "input_audio") readMedia(reader, facts, [...path, key]);
    else if (key === "annotations" && reader.kind() === "array")
      readAnnotations(reader, facts, [...path, key]);
    else walkMember(reader, facts, key, path);
  });
  countMedia(facts, type, path, file);
}

/** Reads the annotations of an earlier answer. Citations of files are cut, so that the ids in them go nowhere. */
export function readAnnotations(reader: JsonReader, facts: ContentFacts, path: Path): void {
  const entries: Span[] = [];
  const ofFiles = new Set<number>();
  reader.array((index) => {
    if (index === bodyLimits.blocks) throw limitExceeded("blocks", "openai", path);
    const isObject = reader.kind() === "object";
    const start = reader.position;
    const known = facts.references.length;
    let type: string | undefined;
    if (isObject)
      reader.object((key) => {
        if (key === "type") type = reader.string();
        else walkMember(reader, facts, key, [...path, index]);
      });
    else walk(reader, facts, [...path, index]);
    if (reader.position === start) reader.skip();
    entries.push({ start, end: reader.position });
    if (!fileAnnotations.has(type)) return;
    ofFiles.add(index);
    facts.references.length = known;
  });
  for (const edit of removeEntries(entries, (index) => ofFiles.has(index))) editCitedFile(facts, edit, path);
}
