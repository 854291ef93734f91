/**
 * The part of a look that goes into values whose shape nobody expects. A file id, a hosted tool's block or a sealed
 * blob is found wherever it stands (rule 7.13): an upstream may be kinder to an odd shape than the reference is. Left
 * alone is only what is the client's own affair.
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

/** A field of the wrong kind or value, named in the dialect's own way. */
export function bodyFieldError(code: ErrorCode, dialect: Dialect, path: Path, problem: string): ApiError {
  const param = fieldPath(dialectErrorFamily[dialect], path);
  return new ApiError(code, `${param}: ${problem}`, { param });
}

/** @throws ApiError 400: something else stands where a list belongs; what is inside of it nobody looked for. */
export function refuseNoList({ dialect }: ContentFacts, path: Path): never {
  throw bodyFieldError("invalid_type", dialect, path, "must be an array");
}

/** A path keeps so much of a key that nobody expected: it may be as long as the body. Characters. */
const MAX_STEP = 60;

/** Goes into the value of a member that no dialect's reader knows. The cursor stays where there is nothing in it. */
export function walkMember(reader: JsonReader, facts: ContentFacts, key: string, path: Path): void {
  const kind = reader.kind();
  if (kind === "object" || kind === "array") {
    if (!clientsOwn.has(key)) new Walk(reader, facts, [...path, key.slice(0, MAX_STEP)]).member(key);
  } else if (isTelling(key)) judgeScalar(reader, facts, key, [...path, key]);
}

/** Goes into an object or array whose shape nobody knows. */
export function walk(reader: JsonReader, facts: ContentFacts, path: Path): void {
  new Walk(reader, facts, path).value();
}

/** Names of members whose values are looked at wherever they stand. */
const isTelling = (key: string): boolean =>
  key.startsWith("file_id") || key === "container_id" || key.startsWith("encrypted_");

/** What a member may hold anywhere that is neither an object nor an array. */
function judgeScalar(reader: JsonReader, facts: ContentFacts, key: string, path: Path): void {
  if (key === "file_id" || key === "file_ids") readReference(reader, facts, "file", path);
  else if (key === "container_id") readReference(reader, facts, "container", path);
  else if (key === "encrypted_content" && facts.itemStart >= 0) readEncrypted(reader, facts, path);
  else if (key === "encrypted_content" || key === "encrypted_index") refuseStray(reader, facts, path);
}

class Walk {
  readonly #reader: JsonReader;
  readonly #facts: ContentFacts;
  /** Of the value at hand; copied where it is kept. */
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

  /** The object or array that is a member's value. */
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

  /** What only a provider's tools or ours can have made has no business here. */
  #type(type: string | undefined): void {
    if (type === undefined) return;
    const known = ownToolBlocks.has(type) || searchCalls.has(type) || type === "item_reference";
    if (known || hostedBlocks.test(type) || hostedItems.test(type))
      addHosted(this.#facts, type, this.#path.slice(0, -1));
  }
}

/** The first one is refused: of what is a fault the others are not counted. */
export function addHosted(facts: ContentFacts, type: string, path: Path): void {
  if (facts.hosted.length === 0) facts.hosted.push({ type, path });
}

/**
 * Takes note of the id ahead.
 * @param objectStart where the object begins that holds it; -1: it stands where no file can take its place.
 * @throws ApiError 400 for a file's that is a number or a boolean.
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

export function addReference(facts: ContentFacts, reference: Reference): void {
  if (facts.references.length === bodyLimits.references)
    throw limitExceeded("references", dialectErrorFamily[facts.dialect], reference.path);
  facts.references.push(reference);
}

/** A sealed blob of ours where nobody opens it: it must not go upstream, and what it means is not known. */
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
 * Keeps the value ahead, the encrypted content of a part of an input item or of the whole of it, where it is a string.
 * @returns whether there is any.
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

/** The span of the string ahead, quotes included; null for an empty one, and for what is no string. */
export function blobAhead(reader: JsonReader): Span | null {
  const isString = reader.kind() === "string";
  const start = reader.position;
  reader.skip();
  return isString && reader.position - start > 2 ? { start, end: reader.position } : null;
}

/** Characters of a blob that tell whose it is; a key id has at most 64 bytes. */
const TELLING = 96;
/** A character may be written as `\uXXXX`. */
const TELLING_BYTES = TELLING * 6;

/** Whether the string ahead is something that we sealed, however it is escaped. */
export function isOurs(reader: JsonReader): boolean {
  const text = beginning(reader);
  return text.startsWith(SEALED_PREFIX) || isEnvelope(text);
}

/** The same for reasoning, which names itself. */
export const isOurReasoning = (reader: JsonReader): boolean => beginning(reader).startsWith(SEALED_PREFIX);

/** The first characters of the string ahead, decoded; empty for other values. The cursor stays. */
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
