/**
 * Searches values of unexpected shape. A file id, a hosted tool's block or a sealed blob is found wherever it stands
 * (rule 7.13), as an upstream may take odder shapes than the reference does. Only the client's own data is left alone.
 */
import type { Dialect } from "../../dialects/dialect.ts";
import { serverToolBlocks, serverToolItems } from "../../dialects/find-server-tool.ts";
import { SEALED_PREFIX } from "../../dialects/reasoning.ts";
import { COMPACTED_PREFIX } from "../../dialects/responses/compaction.ts";
import { dialectErrorFamily } from "../../dialects/errors.ts";
import { ApiError, type ErrorCode } from "../../lib/api-error.ts";
import { bodyLimits, limitExceeded } from "../../lib/body-limits.ts";
import { fieldPath, type PathStep } from "../../lib/field-path.ts";
import type { JsonReader, Span } from "../../lib/json-reader.ts";
import type { Edit } from "../../lib/json-splice.ts";
import { isEnvelope } from "../../lib/seal.ts";
import type { ContentFacts, Path, Reference } from "./content.ts";

/** Blocks that our own server tools write; they are turned back into tool results, never relayed (rule 3.4). */
export const ownToolBlocks = serverToolBlocks;
/** Blocks of tools that run at the provider, or in its containers. */
export const hostedBlocks =
  /^(?:mcp_tool_(?:use|result)|container_upload|(?:\w+_)?code_execution_tool_result|tool_search_tool_result|advisor_tool_result)$/;
/** Input items of tools that run at the provider. */
export const hostedItems =
  /^(?:file_search_call|code_interpreter_call|image_generation_call|mcp_\w+|computer_call|computer_call_output)$/;
export const searchCalls = serverToolItems;

/** Inputs, schemas and labels are the client's own, whatever their fields are called. */
const clientsOwn = new Set([
  "input",
  "input_schema",
  "input_examples",
  "parameters",
  "arguments",
  "schema",
  "metadata",
  "env",
]);

/** Makes the error for a field of the wrong kind or value. */
export function bodyFieldError(code: ErrorCode, dialect: Dialect, path: Path, problem: string): ApiError {
  const param = fieldPath(dialectErrorFamily[dialect], path);
  return new ApiError(code, `${param}: ${problem}`, { param });
}

/** Refuses another value in the place of a list, as it was not searched. @throws ApiError 400 */
export function refuseNoList({ dialect }: ContentFacts, path: Path): never {
  throw bodyFieldError("invalid_type", dialect, path, "must be an array");
}

/** Characters that a path keeps of an unexpected key, which may be as long as the body. */
const MAX_STEP = 60;

/** Searches the value of a member that no dialect's reader knows. The cursor stays before a value with nothing to search. */
export function walkMember(reader: JsonReader, facts: ContentFacts, key: string, path: Path): void {
  const kind = reader.kind();
  if (kind === "object" || kind === "array") {
    if (!clientsOwn.has(key)) new Walk(reader, facts, [...path, key.slice(0, MAX_STEP)]).member(key);
  } else if (isTelling(key)) judgeScalar(reader, facts, key, [...path, key]);
}

/** Searches an object or array of unknown shape. */
export function walk(reader: JsonReader, facts: ContentFacts, path: Path): void {
  new Walk(reader, facts, path).value();
}

/** Whether a value under this key is checked wherever it stands. */
const isTelling = (key: string): boolean =>
  key.startsWith("file_id") || key === "container_id" || key.startsWith("encrypted_");

/** Checks the value of a member that is neither an object nor an array. */
function judgeScalar(reader: JsonReader, facts: ContentFacts, key: string, path: Path): void {
  if (key === "file_id" || key === "file_ids") readReference(reader, facts, "file", path);
  else if (key === "container_id") readReference(reader, facts, "container", path);
  else if (key === "encrypted_content" && facts.itemStart >= 0) readEncrypted(reader, facts, path);
  else if (key === "encrypted_content" || key === "encrypted_index") refuseStray(reader, facts, path);
}

class Walk {
  readonly #reader: JsonReader;
  readonly #facts: ContentFacts;
  /** Path of the current value; copied where it is kept. */
  readonly #path: PathStep[];

  constructor(reader: JsonReader, facts: ContentFacts, path: Path) {
    this.#reader = reader;
    this.#facts = facts;
    this.#path = [...path];
  }

  value(): void {
    const kind = this.#reader.kind();
    if (kind === "object") this.#object();
    else if (kind === "array")
      this.#reader.array((index) => {
        this.#path.push(index);
        this.value();
        this.#path.pop();
      });
  }

  #object(): void {
    this.#reader.object((key) => {
      if (clientsOwn.has(key)) return;
      this.#path.push(key.slice(0, MAX_STEP));
      const kind = this.#reader.kind();
      if (key === "type") this.#type(this.#reader.string());
      else if (kind === "object" || kind === "array") this.member(key);
      else if (kind === "string" || kind === "number") this.#scalar(key);
      this.#path.pop();
    });
  }

  /** Searches a member's object or array. */
  member(key: string): void {
    // An id is never a list or an object; what an upstream would make of one is unknown, so it is refused.
    if (key === "file_id" || key === "container_id")
      readReference(this.#reader, this.#facts, key === "file_id" ? "file" : "container", [...this.#path]);
    else if (key === "file_ids" && this.#reader.kind() === "array")
      this.#reader.array((index) => readReference(this.#reader, this.#facts, "file", [...this.#path, index]));
    else this.value();
  }

  #scalar(key: string): void {
    if (isTelling(key)) judgeScalar(this.#reader, this.#facts, key, [...this.#path]);
  }

  /** Notes a type that only a provider's tools or ours can have made: it is refused here. */
  #type(type: string | undefined): void {
    if (type === undefined) return;
    const known = ownToolBlocks.has(type) || searchCalls.has(type) || type === "item_reference";
    if (known || hostedBlocks.test(type) || hostedItems.test(type))
      addHosted(this.#facts, type, this.#path.slice(0, -1));
  }
}

/** Notes the first hosted block, which is enough to refuse the request. */
export function addHosted(facts: ContentFacts, type: string, path: Path): void {
  if (facts.hosted.length === 0) facts.hosted.push({ type, path });
}

/**
 * Notes the id ahead.
 * @param objectStart start of the object that holds it; -1: no file can take its place.
 * @throws ApiError 400 for a file id that is a number or a boolean.
 */
export function readReference(
  reader: JsonReader,
  facts: ContentFacts,
  kind: Reference["kind"],
  path: Path,
  objectStart = -1,
): void {
  const given = reader.kind();
  if (given === "null") return;
  if (kind === "file" && (given === "number" || given === "boolean"))
    throw bodyFieldError("invalid_type", facts.dialect, path, "must be a string");
  const start = reader.position;
  const id = reader.string() ?? "";
  addReference(facts, { start, end: reader.position, path, kind, id, objectStart });
}

/** Notes a mention of a file or an earlier item. @throws ApiError 400 beyond `bodyLimits.references` */
export function addReference(facts: ContentFacts, reference: Reference): void {
  if (facts.references.length === bodyLimits.references)
    throw limitExceeded("references", dialectErrorFamily[facts.dialect], reference.path);
  facts.references.push(reference);
}

/** Notes the edit that keeps a file which an earlier answer cites from going upstream. @throws ApiError as `addReference` */
export function editCitedFile(facts: ContentFacts, edit: Edit, path: Path): void {
  if (facts.citedFiles.length === bodyLimits.references)
    throw limitExceeded("references", dialectErrorFamily[facts.dialect], path);
  facts.citedFiles.push(edit);
}

/** Refuses a sealed blob of ours in a place where nothing opens it: it must not go upstream. */
export function refuseStray(reader: JsonReader, facts: ContentFacts, path: Path): void {
  if (!isOurs(reader)) return;
  throw bodyFieldError(
    "invalid_request_error",
    facts.dialect,
    path,
    "sealed content stands in the blocks of server tools and in reasoning only",
  );
}

/**
 * Notes the encrypted content ahead, of an input item or of a part of one.
 * @returns whether it is a non-empty string.
 */
export function readEncrypted(reader: JsonReader, facts: ContentFacts, path: Path): boolean {
  if (!isOurReasoning(reader)) refuseStray(reader, facts, path);
  const isCompaction = beginning(reader).startsWith(COMPACTED_PREFIX);
  const span = blobAhead(reader);
  // A summary that only we can read: no upstream gets the item as it is.
  if (isCompaction) facts.serverToolHistory = true;
  else if (span !== null)
    facts.reasoningBlobs.push({ ...span, field: "encrypted", entryStart: facts.itemStart });
  return span !== null;
}

/** Skips the value ahead. Returns the span of its string, quotes included; null for an empty one, and for other values. */
export function blobAhead(reader: JsonReader): Span | null {
  const isString = reader.kind() === "string";
  const start = reader.position;
  reader.skip();
  return isString && reader.position - start > 2 ? { start, end: reader.position } : null;
}

/** Characters of a blob that show whether it is ours; a key id has at most 64 bytes. */
const TELLING = 96;
/** A character may be written as `\uXXXX`. */
const TELLING_BYTES = TELLING * 6;

/** Whether the string ahead is something that we sealed, however it is escaped. */
export function isOurs(reader: JsonReader): boolean {
  const text = beginning(reader);
  return text.startsWith(SEALED_PREFIX) || isEnvelope(text);
}

/** The same for reasoning, which has a prefix of its own. */
export const isOurReasoning = (reader: JsonReader): boolean => beginning(reader).startsWith(SEALED_PREFIX);

/** Returns the first characters of the string ahead, decoded; empty for other values. The cursor stays. */
function beginning(reader: JsonReader): string {
  if (reader.kind() !== "string") return "";
  const { bytes, position } = reader;
  const raw = bytes.toString("latin1", position + 1, position + 1 + TELLING_BYTES);
  const end = /^(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*/.exec(raw)?.[0] ?? "";
  const plain = end.includes("\\") ? unescaped(end) : end;
  return plain.slice(0, TELLING);
}

const unescaped = (text: string): string =>
  text.replace(
    /\\(?:u([0-9a-fA-F]{4})|(.))/gs,
    (_, code: string | undefined, character: string | undefined) =>
      code === undefined ? (character ?? "") : String.fromCharCode(Number.parseInt(code, 16)),
  );
