/** A whole answer as its client gets it: relayed, with parts replaced (design.md §4.2), or converted (design.md §4.3). */
import type { Carry, CodecContext } from "../../dialects/codecs.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { objectOf, parseJson } from "../../dialects/fields.ts";
import type { MessagesUsage } from "../../dialects/messages/types.ts";
import { codecs } from "../../dialects/registry.ts";
import { corruptAnswer } from "../../dialects/upstream-error.ts";
import { countedUsage, type UsageContext } from "../../dialects/usage.ts";
import { splice } from "../../lib/json-splice.ts";
import { asUtf8 } from "../../lib/utf8.ts";
import { holdingIn, type HeldItem } from "./held-items.ts";
import { inspectWhole } from "./inspect-whole.ts";
import { type AnswerSeal, wholeSealEdits } from "./seal-answer.ts";
import { readMessage } from "./whole-answer.ts";

export interface PassedOn {
  /** The client's answer; null: the client has left. */
  readonly body: Buffer | null;
  readonly usage: MessagesUsage;
  /** Output items to keep. */
  readonly items: readonly HeldItem[];
}

/** The input for relaying a whole answer: plain data. */
export interface RelayFacts {
  /** The client's and the upstream's. */
  readonly dialect: Dialect;
  /** Public model id. */
  readonly model: string;
  /** What is charged if the upstream reports no usage, and the bounds within which its report is believed. */
  readonly usage: UsageContext;
  /** Whether the output items of a Responses answer are kept. */
  readonly keepsItems: boolean;
}

/**
 * Relays a whole answer.
 * @param isWanted whether the client still waits for it; else only its usage and items are returned.
 * @throws ApiError or JsonFault when the bytes are no answer.
 */
export function relayedWhole(
  received: Buffer,
  facts: RelayFacts,
  seal: AnswerSeal | null,
  isWanted = true,
): PassedOn {
  const { dialect, model } = facts;
  const body = asUtf8(received);
  const items: HeldItem[] = [];
  const look = inspectWhole(dialect, body, model, facts.keepsItems ? holdingIn(items) : undefined, seal);
  if (!look.complete || look.failed) throw corruptAnswer("its mandatory parts are missing, or it failed");
  const written = () => codecs[dialect].written(objectOf(parseJson(body.toString("utf8"))) ?? {});
  const usage = countedUsage(look.usage, facts.usage, written, true, look.tier);
  if (!isWanted) return { body: null, usage, items };
  const edits = seal === null ? [] : wholeSealEdits(dialect, body, seal);
  for (const edit of look.edits) edits.push(edit);
  return { body: splice(body, edits), usage, items };
}

/**
 * Converts a whole answer.
 * @param dialect the upstream's.
 * @param context for reading the upstream's answer and writing the client's.
 * @param isWanted whether the client still waits for it; else only its usage is returned.
 * @throws ApiError when the bytes are no answer.
 */
export function convertedWhole(
  dialect: Dialect,
  body: Buffer,
  carry: Carry,
  context: CodecContext,
  isWanted = true,
): PassedOn {
  const items: HeldItem[] = [];
  const message = readMessage(dialect, body, context);
  const { usage } = message;
  if (!isWanted) return { body: null, usage, items };
  const holding = context.keepItem === undefined ? context : { ...context, keepItem: holdingIn(items) };
  const written = codecs[carry.dialect].writeResponse(message, carry, holding);
  return { body: Buffer.from(JSON.stringify(written)), usage, items };
}
