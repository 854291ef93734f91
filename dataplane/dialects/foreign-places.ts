/**
 * Finds what the places of a request in Messages form are called in the body of the Chat or Responses client that it
 * was written from: an upstream's refusal names the former, a client knows the latter. What has no certain name has none.
 */
import type { Carry } from "./codecs.ts";
import type { Dialect } from "./dialect.ts";
import { arrayOf, objectOf } from "./fields.ts";
import type { JsonObject, JsonValue, MessagesRequest } from "./messages/types.ts";

/** Places of an upstream's request, each with its name in the client's body. */
export type ForeignPlaces = ReadonlyMap<string, string>;

export const noPlaces: ForeignPlaces = new Map();

/** Fields of Messages, and those of a client that they are written from; the first that the client has counts. */
const namesOf: Readonly<Record<Exclude<Dialect, "messages">, readonly (readonly [string, ...string[]])[]>> = {
  chat: [
    ["max_tokens", "max_completion_tokens", "max_tokens"],
    ["stop_sequences", "stop"],
    ["temperature", "temperature"],
    ["top_p", "top_p"],
    ["tool_choice", "tool_choice"],
    ["output_config.effort", "reasoning_effort"],
    ["output_config.format", "response_format"],
  ],
  responses: [
    ["max_tokens", "max_output_tokens"],
    ["temperature", "temperature"],
    ["top_p", "top_p"],
    ["tool_choice", "tool_choice"],
    ["output_config.effort", "reasoning.effort"],
    ["output_config.format", "text.format"],
  ],
};

/** @param body written from `request` for a Messages upstream. */
export function foreignPlaces(carry: Carry, request: MessagesRequest, body: JsonObject): ForeignPlaces {
  if (carry.dialect === "messages") return noPlaces;
  const places = new Map<string, string>();
  for (const [ours, ...theirs] of namesOf[carry.dialect]) {
    const name = theirs.find((field) => has(carry.request, field));
    if (name !== undefined) places.set(ours, name);
  }
  const note = (node: object, path: string) => {
    const place = carry.places.get(node);
    if (place !== undefined) places.set(path, place);
  };
  // Written one for one.
  for (const [index, tool] of (request.tools ?? []).entries()) note(tool, `tools.${index}`);
  for (const [index, message] of (arrayOf(body["messages"]) ?? []).entries())
    noteContent(objectOf(message)?.["content"], `messages.${index}`, note);
  return places;
}

/** Notes the places of blocks, which are the nodes that were read, and of those in tool results. */
function noteContent(
  content: JsonValue | undefined,
  path: string,
  note: (node: object, path: string) => void,
): void {
  if (!Array.isArray(content)) return;
  for (const [index, block] of content.entries()) {
    const node = objectOf(block);
    if (node === null) continue;
    note(node, `${path}.content.${index}`);
    if (node["type"] === "tool_result") noteContent(node["content"], `${path}.content.${index}`, note);
  }
}

function has(body: JsonObject, field: string): boolean {
  const [first = "", second] = field.split(".");
  const value = body[first];
  return second === undefined ? (value ?? null) !== null : (objectOf(value)?.[second] ?? null) !== null;
}

/** Returns the client's name for the nearest known place that `path` stands in. */
export function placeAround(path: string, places: ForeignPlaces): string | undefined {
  for (let around = path; around !== ""; around = around.slice(0, Math.max(0, around.lastIndexOf(".")))) {
    const place = places.get(around);
    if (place !== undefined) return place;
  }
  return undefined;
}
