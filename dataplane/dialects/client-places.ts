/**
 * Finds the entries of a rewritten request that stand where the client put them: its turns may have become others, and
 * its tools may be reordered. An error may name places in these entries only.
 */
import { isObject } from "../lib/json-object.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";

/** For each list, how many of its first entries stand where the client put them. */
export type ClientPlaces = Readonly<Partial<Record<PlacedField, number>>>;

/** Lists of a request in whose entries errors name places. */
export const placedFields = ["messages", "input", "system", "tools"] as const;
export type PlacedField = (typeof placedFields)[number];

/** @param written from `client`, in its dialect. */
export const clientPlaces = (client: JsonObject, written: JsonObject): ClientPlaces =>
  Object.fromEntries(placedFields.map((field) => [field, sameEntries(client[field], written[field])]));

/** Counts the first entries that are alike in both lists. */
function sameEntries(one: JsonValue | undefined, other: JsonValue | undefined): number {
  if (!Array.isArray(one) || !Array.isArray(other)) return 0;
  const differs = one.findIndex((entry, at) => {
    const written = other[at];
    return written === undefined || !isAlike(entry, written);
  });
  return differs === -1 ? one.length : differs;
}

/** Whether two entries have the same label and parts of the same kinds. */
function isAlike(one: JsonValue, other: JsonValue): boolean {
  if (!isObject(one) || !isObject(other)) return false;
  if (labelOf(one) !== labelOf(other)) return false;
  const [parts, otherParts] = [partsOf(one["content"]), partsOf(other["content"])];
  return (
    parts.length === otherParts.length &&
    parts.every((part, at) => part === TEXT || otherParts[at] === TEXT || part === otherParts[at])
  );
}

/** Returns the role of a turn, the name of a tool or call, or the type of anything else. */
const labelOf = (entry: JsonObject): JsonValue | undefined => {
  const inner = entry["function"];
  const role = entry["role"] === "developer" ? "system" : entry["role"];
  return role ?? entry["name"] ?? (isObject(inner) ? inner["name"] : entry["type"]);
};

/** Kind of string content, which may be written as any part. */
const TEXT = "";

function partsOf(content: JsonValue | undefined): readonly (JsonValue | undefined)[] {
  if (typeof content === "string") return content === "" ? [] : [TEXT];
  return Array.isArray(content) ? content.map((part) => (isObject(part) ? part["type"] : part)) : [];
}
