/**
 * JSON schemas in the part of the language that upstreams follow strictly: they answer 400 to every other keyword in the schema
 * of structured output or of a strict tool. The official SDKs tell the model of such a keyword in words, and so do we
 * (dialects.md §D1).
 */
import { isObject } from "../lib/json-object.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";

/** Which keywords an upstream refuses. */
export interface SchemaLanguage {
  readonly refused: ReadonlySet<string>;
  /** The formats of texts that it knows. */
  readonly formats: ReadonlySet<JsonValue>;
  /** The values of `minItems` that it knows; null: all. */
  readonly minItems: ReadonlySet<JsonValue> | null;
  /** Whether it asks for the type of `enum` and `const` too. */
  readonly typedLiterals: boolean;
}

const formats = [
  "date-time",
  "time",
  "date",
  "duration",
  "email",
  "hostname",
  "ipv4",
  "ipv6",
  "uuid",
] as const;

/** What structured output and strict tools of Messages take, by that dialect's official SDK and the AI SDK. */
export const messagesSchemas: SchemaLanguage = {
  refused: new Set([
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
  ]),
  formats: new Set([...formats, "uri"]),
  minItems: new Set([0, 1]),
  typedLiterals: false,
};

/** What OpenAI's strict mode takes, by its SDK and by its errors ("'default' is not permitted"). */
export const openaiSchemas: SchemaLanguage = {
  refused: new Set(["minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties", "default"]),
  formats: new Set(formats),
  minItems: null,
  typedLiterals: true,
};

/** How deep a schema is looked into. */
const DEPTH_MAX = 100;

/** Whether the keyword can only be told in words. */
export function isRefused(language: SchemaLanguage, keyword: string, value: JsonValue): boolean {
  if (keyword === "minItems") return language.minItems?.has(value) === false;
  if (keyword === "format") return !language.formats.has(value);
  return language.refused.has(keyword);
}

interface Telling {
  readonly language: SchemaLanguage;
  /** Called with each keyword that is only told, and with `oneOf`; with one that stands at several places more than once. */
  readonly lost: (keyword: string) => void;
}

/** Returns the schema with the keywords that are refused told in its descriptions, and with `anyOf` for `oneOf`. */
export const plainSchema = (schema: JsonObject, telling: Telling): JsonObject =>
  plainObject(schema, telling, 0);

function plainObject(schema: JsonObject, telling: Telling, depth: number): JsonObject {
  if (depth > DEPTH_MAX) return schema;
  const { language, lost } = telling;
  const plain = (part: JsonValue): JsonValue =>
    isObject(part) ? plainObject(part, telling, depth + 1) : part;
  const entries: [string, JsonValue][] = [];
  const told: string[] = [];
  for (const [keyword, value] of Object.entries(schema)) {
    const isAny = keyword === "oneOf" && schema["anyOf"] === undefined;
    const isTold = isRefused(language, keyword, value);
    if (isAny || isTold) lost(keyword);
    if (isTold) told.push(`${keyword}: ${JSON.stringify(value)}`);
    else entries.push([isAny ? "anyOf" : keyword, mapParts(keyword, value, plain)]);
  }
  const type = language.typedLiterals ? literalType(schema) : undefined;
  if (type !== undefined) entries.push(["type", type]);
  // Own members whatever their names: one called `__proto__` would become the prototype.
  const result: JsonObject = Object.fromEntries(entries);
  if (told.length === 0) return result;
  const { description } = schema;
  const before = typeof description === "string" && description !== "" ? `${description}\n\n` : "";
  return { ...result, description: `${before}{${told.join(", ")}}` };
}

/** Rewrites the schemas under a keyword: by name, in a list, or one; what no schema stands under stays. */
export function mapParts(keyword: string, value: JsonValue, map: (part: JsonValue) => JsonValue): JsonValue {
  switch (keyword) {
    case "properties":
    case "$defs":
    case "definitions":
      return isObject(value)
        ? Object.fromEntries(Object.entries(value).map(([name, part]) => [name, map(part)]))
        : value;
    case "anyOf":
    case "oneOf":
    case "allOf":
    case "items":
    case "additionalProperties":
      return Array.isArray(value) ? value.map(map) : map(value);
    default:
      return value;
  }
}

/** The type of the values that `enum` or `const` names, where the schema does not say it. */
function literalType({ type, enum: listed, const: only }: JsonObject): JsonValue | undefined {
  if (type !== undefined) return undefined;
  const values = Array.isArray(listed) ? listed : only === undefined ? [] : [only];
  const [first, ...others] = new Set(values.map(typeOf));
  if (first === undefined || [first, ...others].includes(null)) return undefined;
  return others.length === 0 ? first : [first, ...others];
}

/** null: no single value. */
function typeOf(value: JsonValue): string | null {
  if (value === null) return "null";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  return typeof value === "string" || typeof value === "boolean" ? typeof value : null;
}
