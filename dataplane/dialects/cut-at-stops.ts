/**
 * Cuts an upstream's answer at a stop sequence, whole and streamed alike (rule 2.4). Sequences apply to the model's
 * text, as the vendors' do: not to its thinking, and not to the arguments of calls. Texts with nothing between them are
 * one: vendors begin another where it is cited, not where the model stopped, and a Chat client gets them as one.
 */
import { codePoints, CodePointCount } from "../lib/code-points.ts";
import { WaitingLogprobs } from "./logprobs.ts";
import { messageEnd } from "./messages/events.ts";
import { StopMatcher, StopSequences } from "./stop-sequences.ts";
import { citationsWithin } from "./url-citations.ts";
import type {
  ContentBlock,
  Logprob,
  MessagesEvent,
  MessagesResponse,
  MessagesUsage,
  TextBlock,
  UrlCitation,
} from "./messages/types.ts";

type BlockStart = Extract<MessagesEvent, { type: "content_block_start" }>;
type BlockDelta = Extract<MessagesEvent, { type: "content_block_delta" }>;
type BlockStop = Extract<MessagesEvent, { type: "content_block_stop" }>;

/** Cuts a stream of Messages events. */
export class StopCutter {
  readonly #sequences: StopSequences;
  /** Of the texts with nothing between them so far; null: something else came last. */
  #matcher: StopMatcher | null = null;
  /** Those of the texts that are not said wholly; the last may be open still. */
  #texts: WaitingText[] = [];
  #calls = false;
  /** A sequence was found: the answer is complete. */
  isCut = false;

  constructor(stops: readonly string[]) {
    this.#sequences = new StopSequences(stops);
  }

  /** @param usage what the answer has used so far, for the end of one that is cut. */
  push(events: readonly MessagesEvent[], usage: () => MessagesUsage): MessagesEvent[] {
    const said: MessagesEvent[] = [];
    for (const event of events) {
      if (this.isCut) break;
      this.#event(event, said, usage);
    }
    return said;
  }

  #event(event: MessagesEvent, said: MessagesEvent[], usage: () => MessagesUsage): void {
    const open = this.#texts.at(-1);
    if (event.type === "content_block_start" && event.content_block.type === "text") {
      const text = new WaitingText(event);
      this.#texts.push(text);
      this.#text(text, event.content_block.text, said, usage);
    } else if (event.type === "content_block_delta" && open !== undefined) {
      if (event.delta.type === "text_delta") {
        open.logprobs.push(event.delta.logprobs ?? []);
        this.#text(open, event.delta.text, said, usage);
      } else open.cite(event, open === this.#texts[0], said);
    } else if (event.type === "content_block_stop" && open !== undefined) {
      open.stop = event;
      this.#close(said);
    } else {
      if (event.type === "content_block_start") this.#calls ||= event.content_block.type === "tool_use";
      if (event.type !== "ping") this.#end(said);
      said.push(event);
    }
  }

  #text(open: WaitingText, piece: string, said: MessagesEvent[], usage: () => MessagesUsage): void {
    this.#matcher ??= new StopMatcher(this.#sequences);
    const { text, stop } = this.#matcher.push(piece);
    open.left += piece.length;
    this.#say(text, said);
    if (stop === null) return;
    this.isCut = true;
    this.#texts[0]?.cut(said);
    said.push(...messageEnd(endedBy(stop, this.#calls), usage()));
  }

  /** Something else than a text comes: what was kept back is no sequence. */
  #end(said: MessagesEvent[]): void {
    if (this.#matcher === null) return;
    this.#say(this.#matcher.end(), said);
    this.#matcher = null;
  }

  /** So much of the texts that wait may be said. */
  #say(sure: string, said: MessagesEvent[]): void {
    for (let from = 0; from < sure.length;) {
      const [text] = this.#texts;
      if (text === undefined) return;
      const piece = sure.slice(from, from + text.left);
      from += piece.length;
      text.say(piece, said);
      this.#close(said);
    }
  }

  /** Closes those that are said wholly. */
  #close(said: MessagesEvent[]): void {
    while (this.#texts[0]?.close(said) === true) this.#texts.shift();
  }
}

/** A text block of which not everything is said. */
class WaitingText {
  readonly logprobs = new WaitingLogprobs();
  /** UTF-16 units that were received and not said. */
  left = 0;
  /** Its last event, once that has come. */
  stop: BlockStop | null = null;
  /** Held until there is something to show in the block. */
  #start: BlockStart | null;
  readonly #index: number;
  /** The upstream's citations, which count in the code points of the text: what is cut is cited no more. */
  readonly #annotations: UrlCitation[] = [];
  readonly #points = new CodePointCount();
  /** Said once the block begins. */
  readonly #waiting: BlockDelta[] = [];

  constructor(start: BlockStart) {
    const block = start.content_block as TextBlock;
    this.#start = { ...start, content_block: { ...block, text: "" } };
    this.#index = start.index;
  }

  /** @param isHead no other text waits before it. */
  cite(event: BlockDelta, isHead: boolean, said: MessagesEvent[]): void {
    if (event.delta.type === "annotations_delta")
      for (const one of event.delta.annotations) this.#annotations.push(one);
    else {
      this.#waiting.push(event);
      if (isHead) this.#begin(said);
    }
  }

  say(text: string, said: MessagesEvent[]): void {
    this.left -= text.length;
    this.#points.add(text);
    // Of the last piece come all tokens that wait still.
    const isLast = this.left === 0 && this.stop !== null;
    this.#delta(text, isLast ? this.logprobs.rest() : this.logprobs.take(text), said);
  }

  /** @returns whether it is said wholly. */
  close(said: MessagesEvent[]): boolean {
    if (this.left > 0 || this.stop === null) return false;
    this.#begin(said);
    const logprobs = this.logprobs.rest();
    if (logprobs.length > 0) this.#delta("", logprobs, said);
    this.#annotate(this.#annotations, said);
    said.push(this.stop);
    return true;
  }

  /** It ends here. */
  cut(said: MessagesEvent[]): void {
    if (this.#start !== null) return;
    this.#annotate(citationsWithin(this.#annotations, this.#points.value), said);
    said.push({ type: "content_block_stop", index: this.#index });
  }

  #begin(said: MessagesEvent[]): void {
    if (this.#start !== null) said.push(this.#start);
    this.#start = null;
    said.push(...this.#waiting.splice(0));
  }

  #delta(text: string, logprobs: readonly Logprob[], said: MessagesEvent[]): void {
    this.#begin(said);
    const delta = { type: "text_delta", text, ...(logprobs.length > 0 && { logprobs }) } as const;
    said.push({ type: "content_block_delta", index: this.#index, delta });
  }

  #annotate(annotations: readonly UrlCitation[], said: MessagesEvent[]): void {
    if (annotations.length === 0) return;
    const delta = { type: "annotations_delta", annotations } as const;
    said.push({ type: "content_block_delta", index: this.#index, delta });
  }
}

/** Why a cut answer ended: whoever is called must not miss it (dialects.md §D3). */
const endedBy = (stop: string, calls: boolean) =>
  calls
    ? ({ stop_reason: "tool_use", stop_sequence: null } as const)
    : ({ stop_reason: "stop_sequence", stop_sequence: stop } as const);

function cutText({ logprobs, annotations, ...block }: TextBlock, text: string): TextBlock {
  const waiting = new WaitingLogprobs();
  waiting.push(logprobs ?? []);
  return {
    ...block,
    text,
    ...(logprobs !== undefined && { logprobs: waiting.take(text) }),
    ...(annotations !== undefined && { annotations: citationsWithin(annotations, codePoints(text)) }),
  };
}

/** A whole answer, cut. A refusal stays one. */
export function cutMessage(message: MessagesResponse, stops: readonly string[]): MessagesResponse {
  const cut = stops.length === 0 ? null : findCut(message.content, new StopSequences(stops));
  if (cut === null) return message;
  const before = message.content.slice(0, cut.at);
  const content = cut.block.text === "" ? before : [...before, cut.block];
  if (message.stop_reason === "refusal") return { ...message, content };
  const { stop_details: _details, ...rest } = message;
  const calls = before.some(({ type }) => type === "tool_use");
  return { ...rest, content, ...endedBy(cut.stop, calls) };
}

/** What is left of the text block at index `at`, in which the first sequence begins. */
interface FoundCut {
  readonly at: number;
  readonly block: TextBlock;
  readonly stop: string;
}

function findCut(content: readonly ContentBlock[], sequences: StopSequences): FoundCut | null {
  let matcher = new StopMatcher(sequences);
  /** Those with nothing between them so far, and how much of them is part of no sequence, in UTF-16 units. */
  let texts: { at: number; block: TextBlock }[] = [];
  let sure = 0;
  for (const [at, block] of content.entries()) {
    if (block.type === "text") {
      texts.push({ at, block });
      const { text, stop } = matcher.push(block.text);
      sure += text.length;
      if (stop !== null) return cutWithin(texts, sure, stop);
    } else if (texts.length > 0) {
      matcher = new StopMatcher(sequences);
      texts = [];
      sure = 0;
    }
  }
  return null;
}

/** @param sure UTF-16 units of the texts that stand before the sequence. */
function cutWithin(
  texts: readonly { at: number; block: TextBlock }[],
  sure: number,
  stop: string,
): FoundCut | null {
  let left = sure;
  for (const { at, block } of texts) {
    if (left < block.text.length) return { at, block: cutText(block, block.text.slice(0, left)), stop };
    left -= block.text.length;
  }
  return null;
}
