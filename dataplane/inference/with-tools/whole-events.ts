/** A whole answer as the events of an equal stream, which the tool loop reads. Pure, so that another thread can read a large answer. */
import type { CodecContext } from "../../dialects/codecs.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { messageEnd, messageStart, wholeBlock } from "../../dialects/messages/events.ts";
import type { MessagesEvent, MessagesResponse, MessagesUsage } from "../../dialects/messages/types.ts";
import { corruptAnswer } from "../../dialects/upstream-error.ts";
import { readMessage } from "../answer/whole-answer.ts";

/** Plain data. */
export interface WholeEvents {
  readonly events: readonly MessagesEvent[];
  readonly usage: MessagesUsage;
}

/** Most objects and arrays that the loop takes of one answer: ten thousand content blocks, as many as a message may have, hold fewer. */
const MOST_CONTAINERS = 100_000;
/**
 * Most characters of text that the loop takes of one answer, twice what models write with their reasoning and its seals: the main
 * thread has them, and writes those of all iterations in one step (docs/decisions/large-bodies.md).
 */
export const MOST_CHARACTERS = 4 * 1024 * 1024;

/** @param dialect the upstream's. @throws ApiError when `body` is no answer. */
export function wholeEvents(dialect: Dialect, body: Buffer, context: CodecContext): WholeEvents {
  const message = readMessage(dialect, body, context);
  const events = eventsOf(message);
  const size = { containers: 0, characters: 0 };
  if (!fits(events, size)) throw corruptAnswer("more in it than in any message");
  return { events, usage: message.usage };
}

function eventsOf(message: MessagesResponse): MessagesEvent[] {
  const { id, model, content, stop_reason, stop_sequence, stop_details, usage } = message;
  const details = stop_details === undefined ? {} : { stop_details };
  return [
    messageStart(id, model, usage),
    ...content.flatMap(wholeBlock),
    ...messageEnd({ stop_reason, stop_sequence, ...details }, usage),
  ];
}

/** Adds a value's objects and arrays, and the characters of its texts, to `size`. @returns whether both are within their limits. */
function fits(value: unknown, size: { containers: number; characters: number }): boolean {
  if (typeof value === "string") {
    size.characters += value.length;
    return size.characters <= MOST_CHARACTERS;
  }
  if (typeof value !== "object" || value === null) return true;
  size.containers += 1;
  return size.containers <= MOST_CONTAINERS && Object.values(value).every((inner) => fits(inner, size));
}
