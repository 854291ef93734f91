/**
 * Which places of a body that was written anew are the client's own: its turns may have become others, and its tools may stand
 * in another order. Only of these may an error say where it is.
 */
import { isObject } from "../lib/json-object.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";

/** By field, of how many of its first entries the places are the client's. */
export type ClientPlaces = Readonly<Partial<Record<PlacedField, number>>>;

/** Lists of a request in whose entries errors name places. */
export const placedFields = ["messages", "input", "system", "tools"] as const;
export type PlacedField = (typeof placedFields)[number];

/** @param written in the client's dialect. */
export const clientPlaces = (client: JsonObject, written: JsonObject): ClientPlaces =>
  Object.fromEntries(placedFields.map((field) => [field, sameEntries(client[field], written[field])]));

/** How many of the first entries are alike. */
function sameEntries(one: JsonValue | undefined, other: JsonValue | undefined): number {
  if (!Array.isArray(one) || !Array.isArray(other)) return 0;
  const differs = one.findIndex((entry, at) => {
    const written = other[at];
    return written === undefined || !isAlike(entry, written);
  });
  return differs === -1 ? one.length : differs;
}

/** Whether they are of the same kind and have parts of the same kinds. */
function isAlike(one: JsonValue, other: JsonValue): boolean {
  if (!isObject(one) || !isObject(other)) return false;
  if (labelOf(one) !== labelOf(other)) return false;
  const [parts, otherParts] = [partsOf(one["content"]), partsOf(other["content"])];
  return (
    parts.length === otherParts.length &&
    parts.every((part, at) => part === TEXT || otherParts[at] === TEXT || part === otherParts[at])
  );
}

/** Of a turn who said it, of a tool or call its name, of anything else its type. */
const labelOf = (entry: JsonObject): JsonValue | undefined => {
  const inner = entry["function"];
  const role = entry["role"] === "developer" ? "system" : entry["role"];
  return role ?? entry["name"] ?? (isObject(inner) ? inner["name"] : entry["type"]);
};

/** The kind of a text that may be written as a part of it. */
const TEXT = "";

function partsOf(content: JsonValue | undefined): readonly (JsonValue | undefined)[] {
  if (typeof content === "string") return content === "" ? [] : [TEXT];
  return Array.isArray(content) ? content.map((part) => (isObject(part) ? part["type"] : part)) : [];
}
