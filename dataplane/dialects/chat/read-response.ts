/** Reads a Chat upstream's whole answer into Messages form (dialects.md §C2, §D2–§D4; lenient as rules 2.13–2.14 say). */
import type { CodecContext } from "../codecs.ts";
import { CallIds } from "../call-ids.ts";
import { arrayOf, objectOf, stringOf, textOf } from "../fields.ts";
import { codePoints } from "../../lib/code-points.ts";
import { readLogprobs, WaitingLogprobs } from "../logprobs.ts";
import { markReasoning } from "../reasoning.ts";
import { callsTools, parsedInput, toolInput } from "../tool-input.ts";
import { foreignEnd } from "../refusal.ts";
import { corruptAnswer, holdsError, inBandError } from "../upstream-error.ts";
import {
  type WeighText,
  weightOf,
  weightOfArguments,
  type CountedOutput,
  writtenWith,
} from "../output-estimate.ts";
import { movedBy, readUrlCitations, StreamedCitations, textAt } from "../url-citations.ts";
import { countedUsage, readChatUsage } from "../usage.ts";
import type {
  ContentBlock,
  JsonObject,
  JsonValue,
  Logprob,
  MessagesResponse,
  StopReason,
  ToolUseBlock,
  UrlCitation,
} from "../messages/types.ts";

/**
 * @throws ApiError `upstream_error` without choices or message, with broken arguments, or for an error in a 200, also one
 * that a choice holds.
 */
export function readChatResponse(body: JsonObject, context: CodecContext): MessagesResponse {
  const failed = errorHolder(body);
  if (failed !== null) throw inBandError(failed);
  const choices = (arrayOf(body["choices"]) ?? []).map(objectOf);
  const choice = choices.find((candidate) => (candidate?.["index"] ?? 0) === 0) ?? choices[0];
  const message = objectOf(choice?.["message"]);
  if (!choice || message === null) throw corruptAnswer("no choices[0].message");

  const { said, refusal } = saidIn(message);
  if (refusal !== "") addSaid(said, "text", refusal);
  const content = said.map(({ kind, text }): ContentBlock => {
    if (kind === "text") return { type: "text", text };
    return { type: "thinking", thinking: text, signature: markReasoning({ from: "chat" }) };
  });
  const logprobs = refusal === "" ? logprobsIn(choice, context) : [];
  detail(content, logprobs, new StreamedCitations().untold(citationsIn(message, context)));
  const finish = stringOf(choice["finish_reason"]);
  const isCut = isChatLimit(finish);
  content.push(...toolCalls(message, context, isCut));

  const stop = chatStopReason(finish, callsTools(content, isCut), refusal !== "");
  return {
    id: context.newId("msg"),
    type: "message",
    role: "assistant",
    model: context.model,
    content,
    ...foreignEnd(stop),
    usage: countedUsage(
      readChatUsage(body["usage"]),
      context,
      () => writtenInChat(body),
      true,
      stringOf(body["service_tier"]),
    ),
  };
}

/** Returns what of an answer or a chunk holds an error: itself, or one of its choices, as of OpenRouter's; null: nothing. */
export function errorHolder(body: JsonObject): JsonObject | null {
  if (holdsError(body)) return body;
  for (const value of arrayOf(body["choices"]) ?? []) {
    const choice = objectOf(value);
    if (choice !== null && holdsError(choice)) return choice;
  }
  return null;
}

/** A text, or reasoning, between others. */
interface Said {
  readonly kind: "text" | "thinking";
  text: string;
}

/**
 * Returns what a message or a delta says, in its order. `reasoning` is another name of `reasoning_content`, never text;
 * Mistral sends text and thinking as parts of `content`.
 */
export function saidIn(message: JsonObject): { said: Said[]; refusal: string } {
  const content = message["content"];
  const parts = arrayOf(content);
  const thinking = textOf(message["reasoning_content"]) ?? textOf(message["reasoning"]);
  const said: Said[] = [];
  if (thinking !== null) addSaid(said, "thinking", thinking);
  if (parts === null) addSaid(said, "text", stringOf(content) ?? "");
  else
    for (const value of parts) {
      const part = objectOf(value) ?? {};
      const { type } = part;
      if (type === "text") addSaid(said, type, textOfPart(part[type]));
      // Beside a field with all of it, it would stand twice.
      else if (type === "thinking" && thinking === null) addSaid(said, type, textOfPart(part[type]));
    }
  return { said, refusal: stringOf(message["refusal"]) ?? "" };
}

/** Adds a text to the last one, if that is of its kind. */
function addSaid(said: Said[], kind: Said["kind"], text: string): void {
  const last = said.at(-1);
  if (text === "") return;
  if (last?.kind === kind) last.text += text;
  else said.push({ kind, text });
}

/** Adds to the texts of an answer what counts in all of them together. */
function detail(
  content: readonly ContentBlock[],
  logprobs: readonly Logprob[],
  cited: readonly UrlCitation[],
): void {
  if (logprobs.length === 0 && cited.length === 0) return;
  const waiting = new WaitingLogprobs();
  waiting.push(logprobs);
  let points = 0;
  const texts = content.flatMap((block) => {
    if (block.type !== "text") return [];
    const from = points;
    points += codePoints(block.text);
    return [{ block, from }];
  });
  for (const { block } of texts) {
    const own = block === texts.at(-1)?.block ? waiting.rest() : waiting.take(block.text);
    if (own.length > 0) block.logprobs = own;
  }
  for (const one of cited) {
    const text = texts[textAt(texts, one.start_index)];
    if (text === undefined) continue;
    text.block.annotations = [...(text.block.annotations ?? []), ...movedBy([one], -text.from)];
  }
}

/** Reads the log probabilities of a choice's text, whole or in a chunk, where the client is shown them. */
export const logprobsIn = (choice: JsonObject, context: Pick<CodecContext, "logprobs">): Logprob[] =>
  context.logprobs === true ? readLogprobs(objectOf(choice["logprobs"])?.["content"]) : [];

/** Reads the citations of a message or a delta, where the client is shown them. */
export const citationsIn = (
  message: JsonObject,
  context: Pick<CodecContext, "annotations">,
): UrlCitation[] => (context.annotations === true ? readUrlCitations(message["annotations"]) : []);

/** Counts the output of a whole answer. */
export function writtenInChat(body: JsonObject): CountedOutput {
  const messages = (arrayOf(body["choices"]) ?? []).map(
    (choice) => objectOf(objectOf(choice)?.["message"]) ?? {},
  );
  const sumOf = (of: (message: JsonObject) => number) =>
    messages.reduce((sum, message) => sum + of(message), 0);
  return writtenWith(
    sumOf((message) => weighMessage(message)),
    sumOf(audioLengthIn),
    sumOf(imagesIn),
  );
}

/** Returns the length of the base64 audio in a message or a delta. */
export const audioLengthIn = (message: JsonObject): number =>
  stringOf(objectOf(message["audio"])?.["data"])?.length ?? 0;

/** Counts the images in a message or a delta, in the form of upstreams that generate them. */
export const imagesIn = (message: JsonObject): number => arrayOf(message["images"])?.length ?? 0;

/**
 * Returns the calls in a message or a delta; some servers send empty ones beside their text. One in the older `function_call`
 * form counts only where `tool_calls` is empty.
 */
export function callsIn(message: JsonObject): readonly JsonValue[] {
  const calls = (arrayOf(message["tool_calls"]) ?? []).filter((call) => !isEmptyCall(objectOf(call)));
  const legacy = objectOf(message["function_call"]);
  return calls.length > 0 || legacy === null ? calls : [{ index: 0, function: legacy }];
}

function isEmptyCall(call: JsonObject | null): boolean {
  const called = objectOf(call?.["function"]);
  const told = called?.["arguments"];
  const isNamed = textOf(call?.["id"]) !== null || textOf(called?.["name"]) !== null;
  return !isNamed && textOf(told) === null && objectOf(told) === null;
}

/** Returns the arguments in a call as text; some servers send them parsed. @throws ApiError for those that nest too deep. */
export function argumentsIn(called: JsonObject | null): string {
  const told = called?.["arguments"];
  return stringOf(told) ?? (parsedInput(told) === null ? "" : JSON.stringify(told));
}

/** Weighs the output of a message or a delta, the transcript of its speech included. */
export function weighMessage(message: JsonObject, weighText: WeighText = weightOf): number {
  const { said, refusal } = saidIn(message);
  return callsIn(message).reduce<number>(
    (sum, call) => sum + weightOfArguments(objectOf(objectOf(call)?.["function"])?.["arguments"], weighText),
    said.reduce((sum, { text }) => sum + weighText(text), 0) +
      weighText(refusal) +
      weighText(stringOf(objectOf(message["audio"])?.["transcript"]) ?? ""),
  );
}

/** A thinking part holds text parts of its own. */
const textOfPart = (value: JsonValue | undefined): string =>
  stringOf(value) ?? (arrayOf(value) ?? []).map((part) => stringOf(objectOf(part)?.["text"]) ?? "").join("");

/** @param isCut the output limit ended the answer: its last call may be unfinished. */
function toolCalls(message: JsonObject, context: CodecContext, isCut: boolean): ToolUseBlock[] {
  const calls = callsIn(message);
  const ids = new CallIds(context);
  return calls.map((value, index) => {
    const call = objectOf(value);
    const called = objectOf(call?.["function"]);
    const name = textOf(called?.["name"]);
    if (called === null || name === null) throw corruptAnswer("a tool call without a function name");
    return {
      type: "tool_use",
      id: ids.of(call?.["id"]),
      name,
      // Some servers send the arguments parsed.
      input:
        parsedInput(called["arguments"]) ??
        toolInput(
          stringOf(called["arguments"]) ?? "",
          name,
          context.serverTools,
          isCut && index === calls.length - 1,
        ),
    };
  });
}

/** OpenAI's `length`; Mistral and Zhipu have words of their own. */
const limitReasons = ["length", "max_tokens", "model_length", "model_context_window_exceeded"];
/** Zhipu says `sensitive`. */
const filterReasons = ["content_filter", "sensitive"];
/** OpenRouter; DeepSeek; Zhipu. */
const failureReasons = ["error", "insufficient_system_resource", "network_error"];

/** Whether the reason says that the provider failed. */
export const isChatFailure = (finish: string | null): boolean => failureReasons.includes(finish ?? "");

/** Whether the answer ended at its output limit. */
export const isChatLimit = (finish: string | null): boolean => limitReasons.includes(finish ?? "");

/**
 * Maps the end of an answer (dialects.md §D3). Tool calls decide, whatever the upstream's `finish_reason`.
 * @param toolUsed tools were called, and the last call is whole.
 * @throws ApiError for a reason that is a failure.
 */
export function chatStopReason(finish: string | null, toolUsed: boolean, refused: boolean): StopReason {
  if (isChatFailure(finish)) throw corruptAnswer(`finish_reason ${finish}`);
  if (toolUsed) return "tool_use";
  if (refused || filterReasons.includes(finish ?? "")) return "refusal";
  return isChatLimit(finish) ? "max_tokens" : "end_turn";
}
