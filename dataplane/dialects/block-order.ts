/**
 * Puts the pieces of an upstream's stream into the order that Messages form wants: one content block open at a
 * time, indexes without a gap (dialects.md §C1, §D5). Chat and Responses upstreams may interleave their tool calls,
 * name them late, or never say where a piece ends; a piece that is not at the head of the queue waits.
 *
 *   queued ──head of the queue, name and place known──> open ──ended──> closed
 *
 * A tool call ends when its upstream says so, when the stream ends, or, once something waits behind it, as soon as
 * its arguments are a whole JSON object (then nothing can follow but white space). The last one stays open while its
 * arguments are not whole: only the end of the stream tells whether the output limit cut it (dialects.md §D3).
 */
import type { CodecContext } from "./codecs.ts";
import { lengthOfLogprobs } from "./logprobs.ts";
import { CITATIONS_MAX, lengthOfCitations } from "./url-citations.ts";
import { weightOf } from "./output-estimate.ts";
import { corruptAnswer } from "./upstream-error.ts";
import { InputEnd, isUnfinished, isWholeInput, toolInput } from "./tool-input.ts";
import type { ContentBlock, Logprob, MessagesEvent, UrlCitation } from "./messages/types.ts";

/** Most characters of one answer; an upstream that sends more is broken. */
export const MAX_ANSWER_CHARACTERS = 64 * 1024 * 1024;
/** What a block counts as beside its text: however little it holds, something of it is kept until the answer's end. */
export const BLOCK_CHARACTERS = 1_024;

const noLogprobs: readonly Logprob[] = [];

export type PieceKind = "text" | "thinking" | "tool_use";

export interface Piece {
  readonly kind: PieceKind;
  /** Tool calls: the id, and the name once it is known. */
  id: string;
  name: string;
  /** Thinking: the hub signature that closes it. */
  signature: string;
  /** Text and thinking: the characters received. */
  length: number;
  /** Weight of what was received (output-estimate.ts). */
  weight: number;
  /** Tool calls: the arguments received. */
  json: string;
  /** Whether they were parsed and found not to be whole. They may be long: they are parsed again only at their end. */
  judged: boolean;
  /** Waits for that end; null: it has come, or they were not parsed yet. */
  inputEnd: InputEnd | null;
  /** Received and not yet passed on, because the piece is not open. */
  held: string;
  /** Texts: those of the tokens in `held`. */
  heldLogprobs: Logprob[];
  /** Tokens received with log probabilities. */
  tokens: number;
  /** Texts: the citations received and not yet passed on. */
  heldCitations: UrlCitation[];
  /** Citations received. */
  citations: number;
  /** Index of its block, once it is open. */
  index: number;
  state: "queued" | "open" | "closed";
  ended: boolean;
  /** Tool calls: others may still come that belong before it. */
  waits: boolean;
}

/** The place of a tool call that does not come in its turn. */
export interface Place {
  /** The waiting piece that it belongs before; undefined: it is the last. */
  readonly before: Piece | undefined;
  /** It waits for others, until it is released or the answer ends. */
  readonly waits: boolean;
}

const inTurn: Place = { before: undefined, waits: false };

export class BlockOrder {
  /** Pieces in the order of their blocks: the first are closed, the next is open, the others wait. */
  readonly #queue: Piece[] = [];
  /** How many pieces of `#queue` are closed. */
  #closed = 0;
  #events: MessagesEvent[] = [];
  #nextIndex = 0;
  #characters = 0;
  #kept = 0;
  #weight = 0;
  #toolUsed = false;
  /** How the answer ended; null while more may come. `cut`: at its output limit. */
  #end: "whole" | "cut" | null = null;
  /** Whether the output limit cut the last call. */
  #isUnfinished = false;
  readonly #serverTools: CodecContext["serverTools"];

  constructor({ serverTools }: Pick<CodecContext, "serverTools"> = {}) {
    this.#serverTools = serverTools;
  }

  /** Returns the events since this method was last called. */
  take(): MessagesEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  /** Weight of all pieces (output-estimate.ts). */
  get weight(): number {
    return this.#weight;
  }

  /** Characters of arguments, and of what is not passed on yet. */
  get keptCharacters(): number {
    return this.#kept;
  }

  /** Returns the last piece, unless it has ended. */
  last(): Piece | undefined {
    const piece = this.#queue.at(-1);
    return piece?.ended === true ? undefined : piece;
  }

  /** @throws ApiError */
  add(kind: PieceKind, id = "", name = "", { before, waits } = inTurn): Piece {
    this.hold(BLOCK_CHARACTERS);
    const piece: Piece = {
      kind,
      id,
      name,
      signature: "",
      length: 0,
      weight: 0,
      json: "",
      judged: false,
      inputEnd: null,
      held: "",
      heldLogprobs: [],
      tokens: 0,
      heldCitations: [],
      citations: 0,
      index: 0,
      state: "queued",
      ended: false,
      waits,
    };
    if (kind === "tool_use") this.#toolUsed = true;
    this.#queue.splice(before === undefined ? this.#queue.length : this.#queue.indexOf(before), 0, piece);
    this.#advance();
    return piece;
  }

  /**
   * Adds text to a piece. @param weight of what the model wrote of `text`. @param logprobs of its tokens, in a text.
   * @throws ApiError when a closed piece gets more than white space.
   */
  append(
    piece: Piece,
    text: string,
    weight = weightOf(text),
    logprobs: readonly Logprob[] = noLogprobs,
  ): void {
    if (text === "" && logprobs.length === 0) return;
    piece.weight += weight;
    this.#weight += weight;
    this.hold(text.length + lengthOfLogprobs(logprobs));
    if (piece.state === "closed") {
      if (text.trim() === "") return;
      throw corruptAnswer("a content block goes on after its end");
    }
    if (piece.kind === "tool_use") {
      addJson(piece, text);
      this.#kept += text.length;
    } else piece.length += text.length;
    piece.tokens += logprobs.length;
    if (piece.state === "open") this.#events.push(this.#delta(piece, text, logprobs));
    else {
      piece.held += text;
      this.#kept += text.length;
      for (const one of logprobs) piece.heldLogprobs.push(one);
    }
    if (this.#left > 1) this.#advance();
  }

  /** Adds citations to a text, up to `CITATIONS_MAX`, also once it is closed. */
  cite(piece: Piece, citations: readonly UrlCitation[]): void {
    const cited = citations.slice(0, CITATIONS_MAX - piece.citations);
    if (cited.length === 0) return;
    this.hold(lengthOfCitations(cited));
    piece.citations += cited.length;
    if (piece.state === "queued") for (const one of cited) piece.heldCitations.push(one);
    else this.#events.push(annotations(piece, cited));
  }

  /** Counts characters that are kept for the answer. @throws ApiError beyond `MAX_ANSWER_CHARACTERS`. */
  hold(characters: number): void {
    this.#characters += characters;
    if (this.#characters > MAX_ANSWER_CHARACTERS) throw corruptAnswer("the answer has no end");
  }

  /** Sets a tool call's late id; without effect once the call has begun under another one. */
  identify(piece: Piece, id: string): void {
    if (piece.state === "queued") piece.id = id;
  }

  /** Sets a tool call's late name, which lets the call begin. */
  rename(piece: Piece, name: string): void {
    if (piece.name !== "") return;
    piece.name = name;
    this.#advance();
  }

  /** Lets a waiting call begin: all that belong before it have come. */
  release(piece: Piece): void {
    piece.waits = false;
    this.#advance();
  }

  /** Ends a piece: nothing more comes for it. */
  end(piece: Piece): void {
    piece.ended = true;
    this.#advance();
  }

  /**
   * Ends the answer.
   * @param isCut the output limit ended the answer: its last call may be unfinished.
   * @returns whether tools were called and the last call is whole.
   * @throws ApiError when a tool call has no name or no valid arguments.
   */
  endAll(isCut: boolean): { readonly calledTools: boolean } {
    this.#end = isCut ? "cut" : "whole";
    for (const piece of this.#queue) {
      piece.ended = true;
      piece.waits = false;
    }
    this.#advance();
    if (this.#left > 0) throw corruptAnswer("a tool call has no name");
    return { calledTools: this.#toolUsed && !this.#isUnfinished };
  }

  /** Number of pieces that are not closed. */
  get #left(): number {
    return this.#queue.length - this.#closed;
  }

  #advance(): void {
    this.#closeReady();
    // Only once they are half of it: each removal moves the others.
    if (2 * this.#closed < this.#queue.length) return;
    this.#queue.splice(0, this.#closed);
    this.#closed = 0;
  }

  #closeReady(): void {
    for (let head = this.#queue[this.#closed]; head !== undefined; head = this.#queue[this.#closed]) {
      if (head.state === "queued" && !this.#open(head)) return;
      const isLast = this.#left === 1;
      if (!head.ended && (isLast || !isWhole(head))) return;
      if (isLast && this.#end === null && head.kind === "tool_use" && !isWhole(head)) return;
      this.#close(head);
      this.#closed += 1;
    }
  }

  #open(piece: Piece): boolean {
    if (piece.kind === "tool_use" && (piece.name === "" || piece.waits)) return false;
    piece.state = "open";
    piece.index = this.#nextIndex;
    this.#events.push({
      type: "content_block_start",
      index: this.#nextIndex,
      content_block: emptyBlock(piece),
    });
    if (piece.held !== "" || piece.heldLogprobs.length > 0)
      this.#events.push(this.#delta(piece, piece.held, piece.heldLogprobs));
    this.#kept -= piece.held.length;
    piece.held = "";
    piece.heldLogprobs = [];
    if (piece.heldCitations.length > 0) this.#events.push(annotations(piece, piece.heldCitations));
    piece.heldCitations = [];
    return true;
  }

  #close(piece: Piece): void {
    const index = this.#nextIndex;
    if (piece.kind === "tool_use") {
      const isCut = this.#end === "cut" && this.#left === 1;
      const input = toolInput(piece.json, piece.name, this.#serverTools, isCut);
      this.#isUnfinished = isCut && isUnfinished(input);
      if (piece.json.trim() === "" && !this.#isUnfinished) this.#events.push(this.#delta(piece, "{}"));
    }
    if (piece.kind === "thinking" && piece.signature !== "")
      this.#events.push({
        type: "content_block_delta",
        index,
        delta: { type: "signature_delta", signature: piece.signature },
      });
    this.#events.push({ type: "content_block_stop", index });
    piece.ended = true;
    piece.state = "closed";
    this.#nextIndex += 1;
  }

  #delta(piece: Piece, text: string, logprobs: readonly Logprob[] = noLogprobs): MessagesEvent {
    const index = this.#nextIndex;
    switch (piece.kind) {
      case "text":
        return {
          type: "content_block_delta",
          index,
          delta:
            logprobs.length === 0 ? { type: "text_delta", text } : { type: "text_delta", text, logprobs },
        };
      case "thinking":
        return { type: "content_block_delta", index, delta: { type: "thinking_delta", thinking: text } };
      case "tool_use":
        return {
          type: "content_block_delta",
          index,
          delta: { type: "input_json_delta", partial_json: text },
        };
    }
  }
}

const annotations = ({ index }: Piece, cited: readonly UrlCitation[]): MessagesEvent => ({
  type: "content_block_delta",
  index,
  delta: { type: "annotations_delta", annotations: cited },
});

function addJson(piece: Piece, text: string): void {
  piece.json += text;
  if (piece.inputEnd?.add(text) !== true) return;
  piece.inputEnd = null;
  piece.judged = false;
}

function isWhole(piece: Piece): boolean {
  if (piece.kind !== "tool_use" || piece.judged) return false;
  if (isWholeInput(piece.json)) return true;
  piece.judged = true;
  const end = new InputEnd();
  if (!end.add(piece.json)) piece.inputEnd = end;
  return false;
}

function emptyBlock(piece: Piece): ContentBlock {
  switch (piece.kind) {
    case "text":
      return { type: "text", text: "" };
    case "thinking":
      return { type: "thinking", thinking: "", signature: "" };
    case "tool_use":
      return { type: "tool_use", id: piece.id, name: piece.name, input: {} };
  }
}
