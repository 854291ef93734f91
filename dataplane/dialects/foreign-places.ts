/**
 * Finds what the places of an upstream's request are called in the body of the Chat or Responses client that it was
 * written from: the upstream's refusal names the former, the client knows the latter. What has no certain name has none.
 */
import type { Carry } from "./codecs.ts";
import type { Dialect } from "./dialect.ts";
import { arrayOf, objectOf } from "./fields.ts";
import type { JsonObject, JsonValue, MessagesRequest } from "./messages/types.ts";

/** Places of an upstream's request, as paths with dots alone, each with its name in the client's body. */
export type ForeignPlaces = ReadonlyMap<string, string>;

export const noPlaces: ForeignPlaces = new Map();

/** A field of an upstream's request, and those of a client that it is written from; the first that the client has counts. */
type Names = readonly (readonly [string, ...string[]])[];

const sampling: Names = ["temperature", "top_p", "tool_choice"].map((name) => [name, name] as const);

/** By what the client speaks, and what the upstream does. */
const namesOf: Readonly<Record<"chat" | "responses", Partial<Readonly<Record<Dialect, Names>>>>> = {
  chat: {
    messages: [
      ...sampling,
      ["max_tokens", "max_completion_tokens", "max_tokens"],
      ["stop_sequences", "stop"],
      ["output_config.effort", "reasoning_effort"],
      ["output_config.format", "response_format"],
    ],
    responses: [
      ...sampling,
      ["max_output_tokens", "max_completion_tokens", "max_tokens"],
      ["reasoning.effort", "reasoning_effort"],
      ["text.format", "response_format"],
      ["text.verbosity", "verbosity"],
    ],
  },
  responses: {
    messages: [
      ...sampling,
      ["max_tokens", "max_output_tokens"],
      ["output_config.effort", "reasoning.effort"],
      ["output_config.format", "text.format"],
    ],
    chat: [
      ...sampling,
      ["max_completion_tokens", "max_output_tokens"],
      ["max_tokens", "max_output_tokens"],
      ["reasoning_effort", "reasoning.effort"],
      ["response_format", "text.format"],
      ["verbosity", "text.verbosity"],
    ],
  },
};

/** @param body written from `request` for an upstream that speaks this dialect, another than the client's. */
export function foreignPlaces(
  carry: Carry,
  request: MessagesRequest,
  upstream: Dialect,
  body: JsonObject,
): ForeignPlaces {
  if (carry.dialect === "messages") return noPlaces;
  const places = new Map<string, string>();
  for (const [ours, ...theirs] of namesOf[carry.dialect][upstream] ?? []) {
    const name = theirs.find((field) => has(carry.request, field));
    if (name !== undefined) places.set(ours, name);
  }
  const note = (node: object, path: string) => {
    const place = carry.places.get(node);
    if (place !== undefined) places.set(path, place);
  };
  // Written one for one.
  for (const [index, tool] of (request.tools ?? []).entries()) note(tool, `tools.${index}`);
  // Only here the blocks are the nodes that were read.
  if (upstream === "messages")
    for (const [index, message] of (arrayOf(body["messages"]) ?? []).entries())
      noteContent(objectOf(message)?.["content"], `messages.${index}`, note);
  return places;
}

/** Notes the places of blocks, and of those in tool results. */
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
  const dotted = path.replaceAll(/\[(\d+)\]/g, ".$1");
  for (let around = dotted; around !== ""; around = around.slice(0, Math.max(0, around.lastIndexOf(".")))) {
    const place = places.get(around);
    if (place !== undefined) return place;
  }
  return undefined;
}
