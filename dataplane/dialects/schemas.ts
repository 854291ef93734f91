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
