/**
 * Stop sequences that an upstream does not take (rule 2.4): its answer is cut here. A text is read once, whatever
 * the number and the length of the sequences (Aho and Corasick, 1975), in any pieces; kept back is no more of it than may
 * still turn out to be the beginning of a sequence. Sequences apply to the model's text, as the vendors' do: not to its
 * thinking, not to the arguments of calls, and not across two texts.
 */
import { bodyLimits } from "../lib/body-limits.ts";
import type { Cursor } from "./cursor.ts";
import type { Dialect } from "./dialect.ts";
import { messageEnd } from "./messages/events.ts";
import { codePoints } from "../lib/code-points.ts";
import { WaitingLogprobs } from "./logprobs.ts";
import { citationsWithin } from "./url-citations.ts";
import type { Logprob, MessagesEvent, MessagesResponse, MessagesUsage, TextBlock } from "./messages/types.ts";

/** A client's stop sequences. Chat takes one as it is, too. @throws ApiError when they are no texts, or too long. */
export function readStops(root: Cursor, field: string): readonly string[] {
  const isOne = root.style === "openai" && typeof root.get(field) === "string";
  const stops = isOne ? [root.requiredText(field)] : (root.texts(field) ?? []);
  if (stops.reduce((sum, stop) => sum + stop.length + 1, 0) > bodyLimits.stops)
    root.fail(field, `more than ${bodyLimits.stops} characters of stop sequences`);
  return stops;
}

/** Official limit of Chat. */
const CHAT_STOPS_MAX = 4;

/** What an upstream of Chat is asked to apply by itself. */
export const chatStops = (stops: readonly string[]): string[] => stops.slice(0, CHAT_STOPS_MAX);

/**
 * Those that are looked for here. Beyond Chat's limit that is all of them: some servers take no notice of `stop`.
 * Nothing at all stops nothing, and half a character is in no text.
 */
export function stopsCutHere(upstream: Dialect, stops: readonly string[]): readonly string[] {
  const isTaken = upstream === "messages" || (upstream === "chat" && stops.length <= CHAT_STOPS_MAX);
  return isTaken ? [] : stops.filter((stop) => stop !== "" && stop.isWellFormed());
}

/** What may be said of a text so far. */
export interface CutText {
  readonly text: string;
  /** The sequence that was completed: the text is over. */
  readonly stop: string | null;
}

/** The sequences of a request as an automaton: each node is a beginning of one of them, node 0 the empty one. */
export class StopSequences {
  /** By node × 65,536 + UTF-16 code unit. */
  readonly #next = new Map<number, number>();
  /** The longest other beginning that the node ends in. */
  readonly #shorter: number[] = [0];
  /** Length of each node in code units: so much of a text is kept back there. */
  readonly #length: number[] = [0];
  /** The longest sequence that the node ends in. */
  readonly #stop: (string | null)[] = [null];

  constructor(stops: readonly string[]) {
    const added: { readonly node: number; readonly from: number; readonly unit: number }[] = [];
    for (const stop of stops) {
      let node = 0;
      for (let at = 0; at < stop.length; at += 1) {
        const unit = stop.charCodeAt(at);
        const known = this.#next.get(key(node, unit));
        const next = known ?? this.#length.length;
        if (known === undefined) {
          this.#next.set(key(node, unit), next);
          this.#length.push(at + 1);
          this.#stop.push(null);
          added.push({ node: next, from: node, unit });
        }
        node = next;
      }
      this.#stop[node] = stop;
    }
    // Shorter beginnings first: those of the longer ones are found by them.
    const lengths = this.#length;
    added.sort((one, other) => (lengths[one.node] as number) - (lengths[other.node] as number));
    for (const { node, from, unit } of added) {
      const shorter = from === 0 ? 0 : this.step(this.#shorter[from] as number, unit);
      this.#shorter[node] = shorter;
      this.#stop[node] ??= this.#stop[shorter] as string | null;
    }
  }

  step(from: number, unit: number): number {
    for (let node = from; ; node = this.#shorter[node] as number) {
      const next = this.#next.get(key(node, unit));
      if (next !== undefined) return next;
      if (node === 0) return 0;
    }
  }

  lengthOf(node: number): number {
    return this.#length[node] as number;
  }

  stopAt(node: number): string | null {
    return this.#stop[node] as string | null;
  }
}

const key = (node: number, unit: number): number => node * 65_536 + unit;

/** Reads one text, piece by piece, up to the sequence that is completed first; of several at once the longest counts. */
export class StopMatcher {
  readonly #sequences: StopSequences;
  #node = 0;
  #held = "";

  constructor(sequences: StopSequences) {
    this.#sequences = sequences;
  }

  push(piece: string): CutText {
    const text = this.#held + piece;
    for (let at = this.#held.length; at < text.length; at += 1) {
      this.#node = this.#sequences.step(this.#node, text.charCodeAt(at));
      const stop = this.#sequences.stopAt(this.#node);
      if (stop !== null) return { text: text.slice(0, at + 1 - stop.length), stop };
    }
    const sure = text.length - this.#sequences.lengthOf(this.#node);
    this.#held = text.slice(sure);
    return { text: text.slice(0, sure), stop: null };
  }

  /** What was kept back, at the end of a text without a sequence. */
  end(): string {
    return this.#held;
  }
}

/** Cuts a stream of Messages events. */
export class StopCutter {
  readonly #sequences: StopSequences;
  /** The text block that is open; `start` is held until there is something to show in it. */
  #open: {
    start: MessagesEvent | null;
    readonly index: number;
    readonly matcher: StopMatcher;
    readonly logprobs: WaitingLogprobs;
  } | null = null;
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
    if (event.type === "content_block_start" && event.content_block.type === "text") {
      const { index, content_block: block } = event;
      const start: MessagesEvent = { ...event, content_block: { ...block, text: "" } };
      const logprobs = new WaitingLogprobs();
      this.#open = { start, index, matcher: new StopMatcher(this.#sequences), logprobs };
      return this.#text(block.text, said, usage);
    }
    if (event.type === "content_block_start" && event.content_block.type === "tool_use") this.#calls = true;
    if (event.type === "content_block_delta" && event.delta.type === "text_delta") {
      this.#open?.logprobs.push(event.delta.logprobs ?? []);
      return this.#text(event.delta.text, said, usage);
    }
    if (event.type === "content_block_delta") this.#begin(said);
    if (event.type === "content_block_stop" && this.#open !== null) {
      this.#begin(said);
      const { matcher, logprobs } = this.#open;
      this.#say(matcher.end(), logprobs.rest(), said);
      this.#open = null;
    }
    said.push(event);
  }

  #text(piece: string, said: MessagesEvent[], usage: () => MessagesUsage): void {
    if (this.#open === null) return;
    const { matcher, logprobs } = this.#open;
    const { text, stop } = matcher.push(piece);
    this.#say(text, text === "" ? [] : logprobs.take(text), said);
    if (stop === null) return;
    const { start, index } = this.#open;
    this.isCut = true;
    if (start === null) said.push({ type: "content_block_stop", index });
    said.push(...messageEnd(endedBy(stop, this.#calls), usage()));
  }

  #say(text: string, logprobs: readonly Logprob[], said: MessagesEvent[]): void {
    if (this.#open === null || (text === "" && logprobs.length === 0)) return;
    this.#begin(said);
    said.push({
      type: "content_block_delta",
      index: this.#open.index,
      delta: logprobs.length === 0 ? { type: "text_delta", text } : { type: "text_delta", text, logprobs },
    });
  }

  #begin(said: MessagesEvent[]): void {
    if (this.#open === null || this.#open.start === null) return;
    said.push(this.#open.start);
    this.#open.start = null;
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
  if (stops.length === 0) return message;
  const sequences = new StopSequences(stops);
  for (const [at, block] of message.content.entries()) {
    if (block.type !== "text") continue;
    const { text, stop } = new StopMatcher(sequences).push(block.text);
    if (stop === null) continue;
    const before = message.content.slice(0, at);
    const content = text === "" ? before : [...before, cutText(block, text)];
    if (message.stop_reason === "refusal") return { ...message, content };
    const { stop_details: _details, ...rest } = message;
    return {
      ...rest,
      content,
      ...endedBy(
        stop,
        before.some(({ type }) => type === "tool_use"),
      ),
    };
  }
  return message;
}
