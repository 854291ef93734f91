/**
 * JSON schemas for Messages upstreams whose decoders follow a part of the language only: they answer 400 to every other
 * keyword in the schema of structured output or of a strict tool. Both that dialect's official SDK and the AI SDK tell the
 * model of such a keyword in words, and so do we (dialects.md §D1).
 */
import { isObject } from "../lib/json-object.ts";
import type { DropListener } from "./drop-listener.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";

/** Keywords that these decoders refuse. */
const refusedKeywords: ReadonlySet<string> = new Set([
  "minimum",
  "maximum",
  "exclusiveMinimum",
  "exclusiveMaximum",
  "multipleOf",
  "minLength",
  "maxLength",
  "pattern",
  "maxItems",
  "uniqueItems",
  "minProperties",
  "maxProperties",
  "not",
]);

/** The formats of texts that they know. */
const knownFormats: ReadonlySet<JsonValue> = new Set([
  "date-time",
  "time",
  "date",
  "duration",
  "email",
  "hostname",
  "uri",
  "ipv4",
  "ipv6",
  "uuid",
]);

/** How deep a schema is looked into. */
const DEPTH_MAX = 100;

function isRefused(keyword: string, value: JsonValue): boolean {
  if (keyword === "minItems") return value !== 0 && value !== 1;
  if (keyword === "format") return !knownFormats.has(value);
  return refusedKeywords.has(keyword);
}

/**
 * Returns the schema with the keywords that are refused told in its descriptions, and with `anyOf` for `oneOf`.
 * @param place the schema's name in the client's request: the keywords are named behind it as dropped.
 */
export const plainSchema = (schema: JsonObject, place: string, notes: DropListener): JsonObject =>
  plainObject(schema, (keyword) => notes.dropped(`${place}.${keyword}`), 0);

function plainObject(schema: JsonObject, lost: (keyword: string) => void, depth: number): JsonObject {
  if (depth > DEPTH_MAX) return schema;
  const plain = (part: JsonValue): JsonValue => (isObject(part) ? plainObject(part, lost, depth + 1) : part);
  const result: Record<string, JsonValue> = {};
  const told: string[] = [];
  for (const [keyword, value] of Object.entries(schema))
    if (isRefused(keyword, value)) {
      lost(keyword);
      told.push(`${keyword}: ${JSON.stringify(value)}`);
    } else if (keyword === "oneOf" && schema["anyOf"] === undefined) {
      lost(keyword);
      result["anyOf"] = plainParts(keyword, value, plain);
    } else result[keyword] = plainParts(keyword, value, plain);
  if (told.length === 0) return result;
  const { description } = schema;
  const before = typeof description === "string" && description !== "" ? `${description}\n\n` : "";
  return { ...result, description: `${before}{${told.join(", ")}}` };
}

/** Rewrites the schemas under a keyword: by name, in a list, or one; what no schema stands under stays. */
function plainParts(keyword: string, value: JsonValue, plain: (part: JsonValue) => JsonValue): JsonValue {
  switch (keyword) {
    case "properties":
    case "$defs":
    case "definitions":
      return isObject(value)
        ? Object.fromEntries(Object.entries(value).map(([name, part]) => [name, plain(part)]))
        : value;
    case "anyOf":
    case "oneOf":
    case "allOf":
    case "items":
      return Array.isArray(value) ? value.map(plain) : plain(value);
    default:
      return value;
  }
}
