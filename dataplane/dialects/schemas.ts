/** What the dialects ask of JSON schemas. */
import type { JsonObject, JsonValue } from "./messages/types.ts";
import { isObject } from "../lib/json-object.ts";

/** The parameters of a tool that declares none. */
export const emptySchema = (): JsonObject => ({ type: "object", properties: {} });

/** How deep a schema may nest before it is no longer looked into. */
const DEPTH_MAX = 100;

/**
 * Whether every object in a schema is closed in the sense of OpenAI's strict mode, so that `strict: true` can
 * be claimed for it: `additionalProperties: false` and every property required.
 */
export const isClosed = (schema: JsonValue): boolean => closed(schema, 0);

function closed(schema: JsonValue, depth: number): boolean {
  if (depth > DEPTH_MAX) return false;
  if (Array.isArray(schema)) return schema.every((part) => closed(part, depth + 1));
  if (!isObject(schema)) return true;
  const { type, properties } = schema;
  const isObjectType =
    type === "object" || (Array.isArray(type) && type.includes("object")) || isObject(properties);
  if (isObjectType && !closedObject(schema)) return false;
  return Object.entries(schema).every(([keyword, part]) => {
    if (keyword === "enum" || keyword === "const" || keyword === "default" || keyword === "examples")
      return true;
    // The values under these keywords are schemas by name; the names are not keywords.
    if (keyword === "properties" || keyword === "$defs" || keyword === "definitions")
      return !isObject(part) || Object.values(part).every((named) => closed(named, depth + 1));
    return closed(part, depth + 1);
  });
}

function closedObject(schema: JsonObject): boolean {
  if (schema["additionalProperties"] !== false) return false;
  const required = new Set(Array.isArray(schema["required"]) ? schema["required"] : []);
  const { properties } = schema;
  return !isObject(properties) || Object.keys(properties).every((name) => required.has(name));
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
