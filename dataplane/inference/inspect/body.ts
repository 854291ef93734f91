/**
 * Inspects a request's body in one pass: the facts for routing, refusing, editing and the hold estimate, with the
 * positions of what may be edited. Nothing is decoded that is not needed (design.md §4.1); shapes that concern the
 * upstream alone are not checked.
 */
import type { Dialect } from "../../dialects/dialect.ts";
import type { TierFields } from "../../dialects/tiers.ts";
import { dialectErrorFamily } from "../../dialects/errors.ts";
import { ApiError } from "../../lib/api-error.ts";
import { bodyLimits, limitExceeded } from "../../lib/body-limits.ts";
import { withoutMark } from "../../lib/byte-order-mark.ts";
import type { PathStep } from "../../lib/field-path.ts";
import { isBlank } from "../../lib/json-bytes.ts";
import { emptyBody, unreadable } from "../../lib/json-read.ts";
import { JsonFault, JsonReader, type Member, type ObjectSpan } from "../../lib/json-reader.ts";
import { readMessageContent } from "./blocks.ts";
import { FieldChecks, fieldNames, type LimitField } from "./fields.ts";
import { noFacts, type ContentFacts, type ToolEntry } from "./content.ts";
import { readAnnotations, readChatContent, readResponsesInput } from "./parts.ts";
import { readToolChoice, inspectTools, type InspectedChoice } from "./tools.ts";
import { addReference, bodyFieldError, walk, walkMember } from "./walk.ts";

/** Facts of a request for routing, refusing and holding: plain data. */
export interface Facts {
  readonly dialect: Dialect;
  /** Bytes of the body. */
  readonly bodyBytes: number;
  /** Objects and arrays in it. */
  readonly containers: number;
  /** Top-level fields; of a large body only those that `judgedFields` names. */
  readonly fields: ReadonlyMap<string, Member>;
  /** Model name, as the client wrote it. */
  readonly model: string;
  readonly stream: boolean;
  /** Every output limit given; Chat knows two. */
  readonly limits: readonly LimitField[];
  /** Chat's `n`; 1 elsewhere. */
  readonly choices: number;
  readonly tools: readonly ToolEntry[];
  readonly toolChoice: InspectedChoice | null;
  readonly content: ContentFacts;
  /** `prompt_cache_key`. */
  readonly cacheKey: string | null;
  /** Id of the user, or in Claude Code of the session, that the client names. */
  readonly userKey: string | null;
  /** `metadata.tags`, as the client wrote it. */
  readonly tags: string | null;
  /** The values of `store` and `background` where they are booleans, and of `max_tool_calls` where it is a number. */
  readonly store: boolean | undefined;
  readonly background: boolean | undefined;
  readonly maxToolCalls: number | undefined;
  readonly tierFields: TierFields;
  /** Whether `modalities` ask for audio or images as Chat has them, or for anything else than these and text. */
  readonly speaks: boolean;
  readonly draws: boolean;
  readonly otherOutputs: boolean;
  /** Messages: whether `context_management` lets the upstream compact the conversation. */
  readonly compacts: boolean;
}

export interface Inspection extends Facts {
  readonly body: Buffer;
  readonly top: ObjectSpan;
  /** Objects with members that may have to be edited, by their top-level name. */
  readonly objects: ReadonlyMap<string, ObjectSpan>;
  readonly remote: null;
}

/** Positions that the edits of a relayed body need beside `Facts` (request/edits.ts). */
export type EditPlaces = Pick<Inspection, "top" | "objects" | "fields" | "tools">;

/** An inspection made in another thread (large/jobs.ts): small plain data, however large the body is. */
export interface RemoteInspection extends Facts {
  readonly body: null;
  readonly remote: {
    /** Hash that tells its conversation from others (request/conversation-key.ts). */
    readonly beginning: string;
    /** null: there are many, or the body is large; a worker inspects the body again to edit it. */
    readonly places: EditPlaces | null;
  };
}

export type AnyInspection = Inspection | RemoteInspection;

/** Inspects a body. @throws ApiError 400 when it is not a JSON object of the dialect's basic shape (rules 1.4, 1.17). */
export function inspectBody(dialect: Dialect, body: Buffer): Inspection {
  const bytes = withoutMark(body);
  if (isBlank(bytes)) throw emptyBody();
  try {
    return JsonReader.whole(bytes, (reader) => new BodyInspector(dialect, reader).inspect());
  } catch (fault) {
    if (!(fault instanceof JsonFault)) throw fault;
    throw unreadable(bytes, fault, dialectErrorFamily[dialect]);
  }
}

const noPath: readonly PathStep[] = [];
/** Tier fields of a request that names no tier. */
export const noTierFields: TierFields = {};
const noObjects: ReadonlyMap<string, ObjectSpan> = new Map();

class BodyInspector {
  readonly #dialect: Dialect;
  readonly #reader: JsonReader;
  readonly #content: ContentFacts;
  readonly #tools: ToolEntry[] = [];
  #cacheKey: string | null = null;
  #safetyKey: string | null = null;
  #userKey: string | null = null;
  #tags: string | null = null;
  #objects: Map<string, ObjectSpan> | null = null;
  #model: string | undefined;
  #stream: boolean | undefined;
  /** Output limits, in the order of `fieldNames`. */
  readonly #limits: (number | undefined)[] = [];
  #choices: number | undefined;
  #toolChoice: InspectedChoice | null = null;
  #store: boolean | undefined;
  #background: boolean | undefined;
  #maxToolCalls: number | undefined;
  #tierFields: { -readonly [Name in keyof TierFields]: string } | null = null;
  #speaks = false;
  #draws = false;
  #otherOutputs = false;
  #compacts = false;
  #contentItems: number | null = null;

  constructor(dialect: Dialect, reader: JsonReader) {
    this.#dialect = dialect;
    this.#reader = reader;
    this.#content = noFacts(dialect);
  }

  inspect(): Inspection {
    const reader = this.#reader;
    if (reader.kind() !== "object")
      throw new ApiError("invalid_type", "The request body must be a JSON object.");
    const top = reader.members((key) => this.#field(key));
    const fields = new Map<string, Member>();
    for (const member of top.members) fields.set(member.key, asAbsent(member, reader.bytes));
    const checks = new FieldChecks(this.#dialect, fields);
    checks.content(this.#contentItems);
    checks.streamOptions(this.#objects?.get("stream_options"));
    return {
      dialect: this.#dialect,
      body: reader.bytes,
      bodyBytes: reader.bytes.length,
      containers: reader.containers,
      remote: null,
      top,
      fields,
      objects: this.#objects ?? noObjects,
      model: checks.model(this.#model),
      stream: checks.stream(this.#stream),
      limits: checks.limits(this.#limits),
      choices: checks.choices(this.#choices),
      tools:
        this.#content.additionalTools.length === 0
          ? this.#tools
          : [...this.#tools, ...this.#content.additionalTools],
      toolChoice: this.#toolChoice,
      content: this.#content,
      cacheKey: this.#cacheKey,
      userKey: this.#safetyKey ?? this.#userKey,
      tags: this.#tags,
      store: this.#store,
      background: this.#background,
      maxToolCalls: this.#maxToolCalls,
      tierFields: this.#tierFields ?? noTierFields,
      speaks: this.#speaks,
      draws: this.#draws,
      otherOutputs: this.#otherOutputs,
      compacts: this.#compacts,
    };
  }

  #field(key: string): void {
    const reader = this.#reader;
    const { content, limits } = fieldNames[this.#dialect];
    if (key === content) return this.#readContent();
    const limit = (limits as readonly string[]).indexOf(key);
    if (limit >= 0) {
      this.#limits[limit] = reader.number();
      return;
    }
    switch (key) {
      case "model":
        this.#model = reader.string();
        return;
      case "stream":
        this.#stream = reader.boolean();
        return;
      case "n":
        if (this.#dialect === "chat") this.#choices = reader.number();
        return;
      case "tools":
        return inspectTools(reader, this.#content, [key], this.#tools);
      case "tool_choice":
        this.#toolChoice = readToolChoice(reader, this.#content);
        return;
      case "system":
        if (this.#dialect === "messages") readMessageContent(reader, this.#content, [key]);
        else walkMember(reader, this.#content, key, noPath);
        return;
      case "metadata":
        if (reader.kind() === "object") reader.object((name) => this.#readMetadata(name));
        return;
      case "thinking":
      case "output_config":
      case "stream_options":
      case "prompt_cache_options":
        if (reader.kind() === "object")
          (this.#objects ??= new Map()).set(
            key,
            reader.members((name) => walkMember(reader, this.#content, name, [key])),
          );
        else walkMember(reader, this.#content, key, noPath);
        return;
      case "service_tier":
      case "speed":
      case "inference_geo":
        return this.#readTier(key);
      case "reasoning":
        if (reader.kind() === "object")
          (this.#objects ??= new Map()).set(
            key,
            reader.members((name) => {
              if (name === "mode") this.#readTier(name);
              else walkMember(reader, this.#content, name, [key]);
            }),
          );
        else walkMember(reader, this.#content, key, noPath);
        return;
      case "modalities":
        if (reader.kind() === "array")
          reader.array(() => {
            const output = reader.string();
            // Only Chat reports the tokens of these.
            const isPriced = this.#dialect === "chat";
            if (isPriced && output === "audio") this.#speaks = true;
            else if (isPriced && output === "image") this.#draws = true;
            else if (output !== "text") this.#otherOutputs = true;
          });
        else walkMember(reader, this.#content, key, noPath);
        return;
      case "context_management":
        if (this.#dialect === "messages" && reader.kind() === "object") this.#readContextManagement(key);
        else walkMember(reader, this.#content, key, noPath);
        return;
      case "store":
        this.#store = reader.boolean();
        return;
      case "background":
        this.#background = reader.boolean();
        return;
      case "max_tool_calls":
        this.#maxToolCalls = reader.number();
        return;
      case "prompt_cache_key":
        this.#cacheKey = this.#readKey();
        return;
      case "safety_identifier":
        this.#safetyKey = this.#readKey();
        return;
      case "user":
        this.#userKey = this.#readKey() ?? this.#userKey;
        return;
      default:
        walkMember(reader, this.#content, key, noPath);
    }
  }

  /** Reads which edits of the conversation are the upstream's; a compaction is a call of its own. */
  #readContextManagement(field: string): void {
    const reader = this.#reader;
    reader.object((name) => {
      if (name !== "edits" || reader.kind() !== "array")
        return walkMember(reader, this.#content, name, [field]);
      reader.array((index) => {
        const here = [field, name, index];
        if (reader.kind() !== "object") return walk(reader, this.#content, here);
        reader.object((key) => {
          if (key === "type") this.#compacts ||= reader.string()?.startsWith("compact_") === true;
          else walkMember(reader, this.#content, key, here);
        });
      });
    });
  }

  /** Reads a tier field; null counts as absent (rule 1.17). */
  #readTier(name: keyof TierFields): void {
    const isNull = this.#reader.kind() === "null";
    const value = this.#reader.string();
    if (!isNull) (this.#tierFields ??= {})[name] = value ?? "";
  }

  #readMetadata(name: string): void {
    if (name === "user_id" && this.#dialect === "messages") this.#userKey = this.#readKey() ?? this.#userKey;
    if (name !== "tags" || this.#reader.kind() === "null") return;
    const tags = this.#reader.string();
    if (tags === undefined)
      throw bodyFieldError("invalid_type", this.#dialect, ["metadata", name], "must be a string");
    this.#tags = tags;
  }

  /** Reads a key; null when it is empty or no string. */
  #readKey(): string | null {
    const value = this.#reader.string();
    return value === undefined || value === "" ? null : value;
  }

  #readContent(): void {
    const reader = this.#reader;
    const kind = reader.kind();
    if (this.#dialect === "responses" && kind === "string") {
      const start = reader.position;
      reader.skip();
      this.#content.firstUser = { start, end: reader.position };
      this.#contentItems = reader.position - start - 2;
      return;
    }
    if (kind !== "array") return;
    const read = this.#dialect === "responses" ? readResponsesInput : readMessages(this.#dialect);
    this.#contentItems = read(reader, this.#content);
  }
}

/** An empty list of remote servers asks for none: it counts as absent, like null. */
const asAbsent = (member: Member, body: Buffer): Member =>
  member.key === "mcp_servers" &&
  member.kind === "array" &&
  /^\[\s*\]$/.test(body.toString("latin1", member.start, member.end))
    ? { ...member, kind: "null" }
    : member;

const readMessages =
  (dialect: "messages" | "chat") =>
  (reader: JsonReader, facts: ContentFacts): number => {
    const readContent = dialect === "messages" ? readMessageContent : readChatContent;
    return reader.array((index) => {
      if (index === bodyLimits.messages)
        throw limitExceeded("messages", dialectErrorFamily[dialect], ["messages"]);
      const here = ["messages", index];
      if (reader.kind() !== "object") return walk(reader, facts, here);
      const start = reader.position;
      let role: string | undefined;
      reader.object((key) => {
        if (key === "role") role = reader.string();
        else if (key === "content") {
          // Most are plain text.
          if (reader.kind() !== "string") readContent(reader, facts, [...here, key]);
        } else if (key === "annotations" && dialect === "chat" && reader.kind() === "array")
          readAnnotations(reader, facts, [...here, key]);
        else if (key === "audio" && dialect === "chat" && reader.kind() === "object") {
          const audio = reader.position;
          reader.skip();
          const span = { start: audio, end: reader.position, objectStart: audio };
          addReference(facts, { ...span, path: [...here, key], kind: "audio", id: "" });
        } else walkMember(reader, facts, key, here);
      });
      if (role === "user") facts.firstUser ??= { start, end: reader.position };
    });
  };
