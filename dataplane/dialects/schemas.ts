/** What the dialects ask of JSON schemas. */
import type { DropListener } from "./drop-listener.ts";
import { arrayOf } from "./fields.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";
import { isRefused, mapParts, openaiSchemas, plainSchema } from "./plain-schemas.ts";
import { isObject } from "../lib/json-object.ts";

/** The parameters of a tool that declares none. */
export const emptySchema = (): JsonObject => ({ type: "object", properties: {} });

/** How deep a schema may nest before it is no longer looked into. */
const DEPTH_MAX = 100;

/** Keywords of schemas that OpenAI's strict mode refuses, and that cannot be told in words without opening the schema. */
const openKeywords = [
  "allOf",
  "oneOf",
  "not",
  "if",
  "then",
  "else",
  "dependencies",
  "dependentRequired",
  "dependentSchemas",
  "patternProperties",
  "propertyNames",
  "unevaluatedProperties",
  "prefixItems",
  "additionalItems",
  "unevaluatedItems",
  "contains",
];

/** Keywords that OpenAI takes beside a reference; any other, a description too, it refuses there. */
const besideReferences = new Set(["$ref", "$schema", "$defs", "definitions"]);

/**
 * Whether a schema is closed in the sense of OpenAI's strict mode, so that `strict: true` can be claimed for it: each part
 * has a type and no keyword that is refused, each object `additionalProperties: false` and every property required.
 */
export const isClosed = (schema: JsonValue): boolean => closed(schema, 0);

function closed(schema: JsonValue, depth: number): boolean {
  if (depth > DEPTH_MAX || !isObject(schema)) return false;
  const { type, properties, items, anyOf, $ref } = schema;
  if (type === undefined && !Array.isArray(anyOf) && typeof $ref !== "string") return false;
  if (openKeywords.some((keyword) => schema[keyword] !== undefined)) return false;
  if ($ref !== undefined && Object.keys(schema).some((keyword) => !besideReferences.has(keyword)))
    return false;
  if (Object.entries(schema).some(([keyword, value]) => isRefused(openaiSchemas, keyword, value)))
    return false;
  if ((hasType(type, "object") || isObject(properties)) && !closedObject(schema)) return false;
  if (hasType(type, "array") && items === undefined) return false;
  const parts = [
    // The values under these keywords are schemas by name; the names are not keywords.
    ...named.flatMap((keyword) => (isObject(schema[keyword]) ? Object.values(schema[keyword]) : [])),
    ...(Array.isArray(anyOf) ? anyOf : []),
    ...(items === undefined ? [] : [items]),
  ];
  return parts.every((part) => closed(part, depth + 1));
}

const hasType = (type: JsonValue | undefined, name: string): boolean =>
  type === name || (Array.isArray(type) && type.includes(name));

function closedObject(schema: JsonObject): boolean {
  if (schema["additionalProperties"] !== false) return false;
  const required = new Set(Array.isArray(schema["required"]) ? schema["required"] : []);
  const { properties } = schema;
  return !isObject(properties) || Object.keys(properties).every((name) => required.has(name));
}

/**
 * Returns a schema of a Messages client, which may hold more, as OpenAI's strict mode takes it; null: it cannot.
 * @param place the schema's name in the client's request: what is only told in words is named behind it as dropped.
 */
export function strictSchema(schema: JsonObject, place: string, notes: DropListener): JsonObject | null {
  const told = new Set<string>();
  const plain = plainSchema(schema, { language: openaiSchemas, lost: (keyword) => told.add(keyword) });
  if (!isClosed(plain)) return null;
  for (const keyword of told) notes.dropped(`${place}.${keyword}`);
  return plain;
}

/**
 * Returns the parameters of a function with what they leave open said: OpenAI refuses, strict or not, an object without
 * `properties` and a list without `items`, which MCP servers declare and Messages takes.
 */
export function completeSchema(schema: JsonObject): JsonObject {
  const complete = lacksItems(schema, 0) ? withItems(schema, 0) : schema;
  return complete["type"] === "object" && complete["properties"] === undefined
    ? { ...complete, properties: {} }
    : complete;
}

/** Whether the schema, or one in it, is a list without items. */
function lacksItems(schema: JsonValue | undefined, depth: number): boolean {
  if (depth > DEPTH_MAX || !isObject(schema)) return false;
  const { type, items, additionalProperties } = schema;
  if (hasType(type, "array") && items === undefined) return true;
  const lacks = (part: JsonValue | undefined) => lacksItems(part, depth + 1);
  return (
    named.some((keyword) => isObject(schema[keyword]) && Object.values(schema[keyword]).some(lacks)) ||
    ["anyOf", "oneOf", "allOf"].some((keyword) => arrayOf(schema[keyword])?.some(lacks) === true) ||
    (Array.isArray(items) ? items.some(lacks) : lacks(items)) ||
    lacks(additionalProperties)
  );
}

/** As deep as `lacksItems` has looked. */
function withItems(schema: JsonObject, depth: number): JsonObject {
  if (depth > DEPTH_MAX) return schema;
  const complete = (part: JsonValue): JsonValue => (isObject(part) ? withItems(part, depth + 1) : part);
  const entries = Object.entries(schema).map(
    ([keyword, value]) => [keyword, mapParts(keyword, value, complete)] as const,
  );
  const isBare = hasType(schema["type"], "array") && schema["items"] === undefined;
  return { ...Object.fromEntries(entries), ...(isBare && { items: {} }) };
}

/** Keywords whose values are schemas by name, and those that list schemas of which a value has one. */
const named = ["properties", "$defs", "definitions"] as const;
const listed = ["anyOf", "oneOf"] as const;

/**
 * Returns the schema with every object closed that lists its properties and does not say whether it has others: what fits
 * it fits the schema as it was. A schema with an object that has to fit several parts at once stays: each part knows only its
 * own properties, and closed would refuse those of the others.
 */
export const closeObjects = (schema: JsonObject): JsonObject =>
  isCombined(schema, 0) ? schema : closeObject(schema);

function isCombined(schema: JsonValue, depth: number): boolean {
  if (depth > DEPTH_MAX) return true;
  if (!isObject(schema)) return false;
  const { properties, allOf, $ref, items } = schema;
  if (allOf !== undefined) return true;
  if (isObject(properties) && ($ref !== undefined || listed.some((keyword) => schema[keyword] !== undefined)))
    return true;
  const byName = named
    .map((keyword) => schema[keyword])
    .flatMap((of) => (isObject(of) ? Object.values(of) : []));
  const inLists = listed.map((keyword) => schema[keyword]).flatMap((of) => (Array.isArray(of) ? of : []));
  return [...byName, ...inLists, items ?? null].some((part) => isCombined(part, depth + 1));
}

/** As deep as `isCombined` has looked, and no deeper. */
function closeObject(schema: JsonObject): JsonObject {
  const close = (part: JsonValue): JsonValue => (isObject(part) ? closeObject(part) : part);
  const result = { ...schema };
  for (const keyword of named) {
    const parts = schema[keyword];
    if (isObject(parts))
      result[keyword] = Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, close(part)]));
  }
  for (const keyword of listed) {
    const parts = schema[keyword];
    if (Array.isArray(parts)) result[keyword] = parts.map((part) => close(part));
  }
  if (schema["items"] !== undefined) result["items"] = close(schema["items"]);
  if (isObject(schema["properties"])) result["additionalProperties"] ??= false;
  return result;
}
