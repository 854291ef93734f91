/**
 * Cuts an upstream's answer at a stop sequence, whole and streamed alike (rule 2.4). Sequences apply to the model's
 * text, as the vendors' do: not to its thinking, and not to the arguments of calls. Neighbouring text blocks count as
 * one text: vendors begin another block at a citation, not where the model stopped, and a Chat client gets them joined.
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
  /** Matcher of the current run of text blocks; null when something else came last. */
  #matcher: StopMatcher | null = null;
  /** Text blocks that are not wholly passed on; the last may still be open. */
  #texts: WaitingText[] = [];
  #calls = false;
  /** Whether a sequence was found: the answer is complete. */
  isCut = false;

  constructor(stops: readonly string[]) {
    this.#sequences = new StopSequences(stops);
  }

  /** @param usage of the answer so far, for the end of a cut answer. */
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
    if (event.type === "content_block_delta" && event.delta.type === "annotations_delta")
      this.#cite(event.index, event.delta.annotations, said);
    else if (event.type === "content_block_start" && event.content_block.type === "text") {
      const text = new WaitingText(event);
      this.#texts.push(text);
      this.#text(text, event.content_block.text, said, usage);
    } else if (event.type === "content_block_delta" && open !== undefined) {
      if (event.delta.type === "text_delta") {
        open.logprobs.push(event.delta.logprobs ?? []);
        this.#text(open, event.delta.text, said, usage);
      } else open.add(event, open === this.#texts[0], said);
    } else if (event.type === "content_block_stop" && open !== undefined) {
      open.stop = event;
      this.#close(said);
    } else {
      if (event.type === "content_block_start") this.#calls ||= event.content_block.type === "tool_use";
      if (event.type !== "ping") this.#end(said);
      said.push(event);
    }
  }

  /** Passes on citations with their text, or by themselves behind it. */
  #cite(index: number, annotations: readonly UrlCitation[], said: MessagesEvent[]): void {
    const text = this.#texts.find((waiting) => waiting.index === index);
    if (text === undefined) said.push(annotationsDelta(index, annotations));
    else for (const one of annotations) text.annotations.push(one);
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

  /** Ends the run of texts: what was held back is no sequence. */
  #end(said: MessagesEvent[]): void {
    if (this.#matcher === null) return;
    this.#say(this.#matcher.end(), said);
    this.#matcher = null;
  }

  /** Passes on text that is part of no sequence. */
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

  /** Closes the blocks that are wholly passed on. */
  #close(said: MessagesEvent[]): void {
    while (this.#texts[0]?.close(said) === true) this.#texts.shift();
  }
}

/** A text block that is not wholly passed on. */
class WaitingText {
  readonly logprobs = new WaitingLogprobs();
  /** UTF-16 units that were received and not passed on. */
  left = 0;
  /** The block's last event, once it has come. */
  stop: BlockStop | null = null;
  /** The block's first event, held until the block has something to show. */
  #start: BlockStart | null;
  readonly index: number;
  /** The upstream's citations, with positions in code points of the text; those of cut text are dropped. */
  readonly annotations: UrlCitation[] = [];
  readonly #points = new CodePointCount();
  /** Deltas to pass on once the block begins. */
  readonly #waiting: BlockDelta[] = [];

  constructor(start: BlockStart) {
    const block = start.content_block as TextBlock;
    this.#start = { ...start, content_block: { ...block, text: "" } };
    this.index = start.index;
  }

  /** @param isHead no other text waits before this one. */
  add(event: BlockDelta, isHead: boolean, said: MessagesEvent[]): void {
    this.#waiting.push(event);
    if (isHead) this.#begin(said);
  }

  say(text: string, said: MessagesEvent[]): void {
    this.left -= text.length;
    this.#points.add(text);
    // The last piece takes all tokens that still wait.
    const isLast = this.left === 0 && this.stop !== null;
    this.#delta(text, isLast ? this.logprobs.rest() : this.logprobs.take(text), said);
  }

  /** @returns whether the block is wholly passed on, and ended. */
  close(said: MessagesEvent[]): boolean {
    if (this.left > 0 || this.stop === null) return false;
    this.#begin(said);
    const logprobs = this.logprobs.rest();
    if (logprobs.length > 0) this.#delta("", logprobs, said);
    this.#annotate(this.annotations, said);
    said.push(this.stop);
    return true;
  }

  /** Ends the block at the stop sequence. */
  cut(said: MessagesEvent[]): void {
    if (this.#start !== null) return;
    this.#annotate(citationsWithin(this.annotations, this.#points.value), said);
    said.push({ type: "content_block_stop", index: this.index });
  }

  #begin(said: MessagesEvent[]): void {
    if (this.#start !== null) said.push(this.#start);
    this.#start = null;
    said.push(...this.#waiting.splice(0));
  }

  #delta(text: string, logprobs: readonly Logprob[], said: MessagesEvent[]): void {
    this.#begin(said);
    const delta = { type: "text_delta", text, ...(logprobs.length > 0 && { logprobs }) } as const;
    said.push({ type: "content_block_delta", index: this.index, delta });
  }

  #annotate(annotations: readonly UrlCitation[], said: MessagesEvent[]): void {
    if (annotations.length > 0) said.push(annotationsDelta(this.index, annotations));
  }
}

const annotationsDelta = (index: number, annotations: readonly UrlCitation[]): BlockDelta => ({
  type: "content_block_delta",
  index,
  delta: { type: "annotations_delta", annotations },
});

/** Stop reason of a cut answer: calls before the sequence must not be missed (dialects.md §D3). */
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

/** Cuts a whole answer. A refusal keeps its stop reason. */
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

/** The first sequence, and what is left of the text block at index `at` in which it begins. */
interface FoundCut {
  readonly at: number;
  readonly block: TextBlock;
  readonly stop: string;
}

function findCut(content: readonly ContentBlock[], sequences: StopSequences): FoundCut | null {
  let matcher = new StopMatcher(sequences);
  /** The current run of text blocks, and how many UTF-16 units of it are part of no sequence. */
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
