/**
 * A Chat upstream's stream in Messages form (dialects.md §C2, §D5; lenient as rules 2.13–2.14 say).
 *
 *   nothing ──first chunk──> running ──finish_reason──> finished ──[DONE] or any end──> over
 *                               └───────────[DONE]──────────────────────────────────────^
 *
 * A `[DONE]` before any chunk is the end of nothing (rule 1.6).
 */
import { CallIds } from "../call-ids.ts";
import type { CodecContext, EndCause, SseEvent, StreamReader } from "../codecs.ts";
import { CodePointCount } from "../../lib/code-points.ts";
import { BlockOrder } from "../block-order.ts";
import type { Piece, PieceKind, Place } from "../block-order.ts";
import { arrayOf, objectOf, parseJson, stringOf, textOf } from "../fields.ts";
import { markReasoning } from "../reasoning.ts";
import { WaitingLogprobs } from "../logprobs.ts";
import { isWholeInput, MAX_CALLS } from "../tool-input.ts";
import { corruptAnswer, cutAnswer, inBandError } from "../upstream-error.ts";
import { writtenText } from "../output-estimate.ts";
import { countedUsage, readChatUsage } from "../usage.ts";
import { foreignEnd } from "../refusal.ts";
import {
  argumentsIn,
  callsIn,
  citationsIn,
  errorHolder,
  logprobsIn,
  saidIn,
  chatStopReason,
  isChatFailure,
  isChatLimit,
} from "./read-response.ts";
import { movedBy, StreamedCitations, textAt } from "../url-citations.ts";
import { messageEnd, messageStart } from "../messages/events.ts";
import type {
  JsonObject,
  JsonValue,
  Logprob,
  MessagesEvent,
  MessagesUsage,
  UrlCitation,
} from "../messages/types.ts";

/**
 * A delta with a whole call's id and name begins that call once more if it is the call's own beginning, of so many characters at
 * the least: another call's would differ sooner. The pieces of a long text are longer (long-delta.ts).
 */
const MIN_REPEATED_CHARACTERS = 8_192;
/** Most characters of calls and thinking that wait for citations of the text before them; later citations are left out. */
const MAX_WAITING_CHARACTERS = 1_024;

interface Call {
  readonly piece: Piece;
  /** The upstream's own id; null until it names one. */
  id: string | null;
  /** True when a delta continued the arguments though it had a name: whether they are whole is not checked again. */
  inPieces: boolean;
  /** Its arguments, whole, as they were when it first seemed to begin once more; null before. */
  whole: string | null;
}

/** A text, and the code points of the texts before it. */
interface CitedText {
  readonly piece: Piece;
  readonly from: number;
}

interface CallDelta {
  readonly index: JsonValue | undefined;
  readonly id: string | null;
  readonly name: string | null;
  readonly json: string;
}

export class ChatStreamReader implements StreamReader {
  readonly #context: CodecContext;
  readonly #blocks: BlockOrder;
  readonly #ids: CallIds;
  /** Tool calls by `index`; a call without one stands under the number of calls before it. */
  readonly #calls = new Map<number, Call>();
  readonly #allCalls: Call[] = [];
  /** Calls under lower indexes have come, or are not waited for. */
  #inOrder = 0;
  /** The arguments of the whole call that comes once more in pieces, and how many characters of it came again. */
  #repeated: { readonly whole: string; characters: number } | null = null;
  /** Number of texts and reasonings so far. */
  #said = 0;
  /** Calls with higher indexes, by these: those between may still come. */
  #early: { readonly index: number; readonly piece: Piece }[] = [];
  #started = false;
  #finish: string | null = null;
  #refused = false;
  #reported: MessagesUsage | null = null;
  /** Whether the report is of the whole answer, not a running total (continuous usage). */
  #final = false;
  /** The last service tier that a chunk named. */
  #tier: string | null = null;
  #over = false;
  /** Code points of all texts so far; counted where citations are shown. */
  readonly #points = new CodePointCount();
  /** All texts, each with the code points before it; kept where citations are shown. */
  readonly #texts: CitedText[] = [];
  readonly #citations = new StreamedCitations();
  /** Citations that came before the text that they begin in. */
  #uncited: readonly UrlCitation[] = [];
  /** Where the first of them begins. */
  #uncitedFrom = 0;
  /** The last text, kept open while calls or thinking wait behind it: citations mostly come at the end of an answer. */
  #citable: Piece | null = null;
  /** Characters that wait behind `#citable`. */
  #waiting = 0;

  constructor(context: CodecContext) {
    this.#context = context;
    this.#blocks = new BlockOrder(context);
    this.#ids = new CallIds(context);
  }

  get usage(): MessagesUsage {
    return countedUsage(
      this.#reported,
      this.#context,
      () => writtenText(this.#blocks.weight),
      this.#final,
      this.#tier,
    );
  }

  get awaitsReport(): boolean {
    return isChatFailure(this.#finish);
  }

  get keptCharacters(): number {
    return this.#blocks.keptCharacters;
  }

  step(event: SseEvent): MessagesEvent[] {
    if (this.#over || event.data === "") return [];
    if (event.data.startsWith("[DONE]")) {
      if (!this.#started) throw corruptAnswer("an end before any chunk");
      return this.#finished();
    }
    const chunk = objectOf(parseJson(event.data));
    if (chunk === null) {
      // The answer is whole by then, and its usage may still come (rule 2.13).
      if (this.#finish !== null) return [];
      throw corruptAnswer("a chunk that is not a JSON object");
    }
    const failed = event.event === "error" ? chunk : errorHolder(chunk);
    if (failed !== null) throw inBandError(failed);
    const start = this.#start();
    const choices = arrayOf(chunk["choices"]) ?? [];
    for (const value of choices) this.#choice(objectOf(value));
    // Nothing was passed on: it can still be an HTTP error, as where the stream is relayed, and another upstream be asked.
    if (start !== null && isChatFailure(this.#finish)) throw inBandError({});
    this.#tier = stringOf(chunk["service_tier"]) ?? this.#tier;
    const reported = readChatUsage(chunk["usage"]);
    if (reported !== null) {
      this.#reported = reported;
      this.#final ||= choices.length === 0 || this.#finish !== null;
    }
    const events = this.#blocks.take();
    // Text beside a failure or behind it counts as usage, but may be the provider's words on what went wrong: nobody gets it.
    if (this.awaitsReport) return [];
    return start === null ? events : [start, ...events];
  }

  end(cause: EndCause): MessagesEvent[] {
    if (this.#over) return [];
    if (this.#finish === null) throw cause.kind === "failed" ? cause.error : cutAnswer();
    return this.#finished();
  }

  #start(): MessagesEvent | null {
    if (this.#started) return null;
    this.#started = true;
    return messageStart(this.#context.newId("msg"), this.#context.model, this.usage);
  }

  #choice(choice: JsonObject | null): void {
    if (choice === null || (choice["index"] ?? 0) !== 0) return;
    // A few servers call the delta `message`.
    const delta = objectOf(choice["delta"]) ?? objectOf(choice["message"]);
    if (delta !== null) this.#delta(delta, logprobsIn(choice, this.#context));
    const finish = textOf(choice["finish_reason"]);
    // The usage may come behind a failure; no later reason undoes it.
    if (finish !== null && !isChatFailure(this.#finish)) this.#finish = finish;
  }

  #delta(delta: JsonObject, logprobs: readonly Logprob[]): void {
    const { said, refusal } = saidIn(delta);
    const calls = callsIn(delta);
    const lastText = said.findLast(({ kind }) => kind === "text");
    // Most streams have none.
    const waiting = logprobs.length === 0 ? null : new WaitingLogprobs();
    waiting?.push(logprobs);
    for (const piece of said) {
      const { kind, text } = piece;
      const own = piece === lastText ? waiting?.rest() : kind === "text" ? waiting?.take(text) : undefined;
      this.#say(kind, text, own);
    }
    // Without a text in the delta they may be a call's, as some servers send those too.
    const areOfText = logprobs.length > 0 && calls.length === 0 && this.#blocks.last()?.kind === "text";
    if (lastText === undefined && areOfText) this.#say("text", "", logprobs);
    if (refusal !== "") {
      this.#refused = true;
      this.#say("text", refusal);
    }
    for (const call of calls) this.#call(objectOf(call));
    const cited = this.#citations.untold(citationsIn(delta, this.#context));
    if (cited.length > 0) {
      this.#uncited = [...this.#uncited, ...cited];
      this.#uncitedFrom = 0;
    }
    if (this.#uncited.length > 0 && this.#uncitedFrom < this.#points.value) this.#cite(this.#points.value);
  }

  /**
   * Adds waiting citations to the texts that they begin in; their indexes count in all texts of the answer.
   * @param points those that begin behind this many code points go on waiting.
   */
  #cite(points: number): void {
    if (this.#texts.length === 0) return;
    const later: UrlCitation[] = [];
    for (const one of this.#uncited) {
      if (one.start_index >= points) {
        later.push(one);
        continue;
      }
      const { piece, from } = this.#texts[textAt(this.#texts, one.start_index)] as CitedText;
      this.#blocks.cite(piece, movedBy([one], -from));
    }
    this.#uncited = later;
    this.#uncitedFrom = Math.min(...later.map(({ start_index }) => start_index));
  }

  #say(kind: Exclude<PieceKind, "tool_use">, text: string, logprobs?: readonly Logprob[]): void {
    const last = this.#blocks.last();
    const piece = last?.kind === kind ? last : this.#add(kind);
    if (kind === "text" && this.#context.annotations === true) {
      if (piece !== last) this.#texts.push({ piece, from: this.#points.value });
      this.#points.add(text);
    }
    this.#blocks.append(piece, text, undefined, logprobs);
    if (kind === "thinking") this.#waits(text);
  }

  /** Begins a piece. Text and thinking end here; a tool call may continue beside later pieces. */
  #add(kind: PieceKind, id?: string, name?: string, place?: Place): Piece {
    const last = this.#blocks.last();
    if (kind === "text") this.#letGo();
    if (last?.kind === "text" && this.#context.annotations === true) this.#citable = last;
    else if (last !== undefined && last.kind !== "tool_use") this.#blocks.end(last);
    const piece = this.#blocks.add(kind, id, name, place);
    if (kind !== "tool_use") this.#said += 1;
    if (kind === "thinking") piece.signature = markReasoning({ from: "chat" });
    return piece;
  }

  /** Counts text that waits behind `#citable`, if there is one. */
  #waits(text: string): void {
    if (this.#citable !== null) this.#waiting += text.length;
    if (this.#waiting > MAX_WAITING_CHARACTERS) this.#letGo();
  }

  /** Closes `#citable`, so that the pieces behind it are passed on. */
  #letGo(): void {
    if (this.#citable !== null) this.#blocks.end(this.#citable);
    this.#citable = null;
    this.#waiting = 0;
  }

  #call(call: JsonObject | null): void {
    if (call === null) return;
    const called = objectOf(call["function"]);
    const id = textOf(call["id"]);
    const name = textOf(called?.["name"]);
    const json = argumentsIn(called);
    const piece = this.#find({ index: call["index"], id, name, json });
    if (piece === null) return;
    if (name !== null) this.#blocks.rename(piece, name);
    this.#blocks.append(piece, json);
    this.#waits(json);
  }

  /** Returns the call that a delta continues, or a new one; null for a delta that repeats a whole call. */
  #find(delta: CallDelta): Piece | null {
    const { id, name } = delta;
    const given = typeof delta.index === "number" ? delta.index : null;
    const known = this.#known(given, id);
    if (known !== undefined && given === null && this.#repeats(known, delta)) return null;
    if (known !== undefined && !isAnother(known, delta, given !== null)) {
      if (known.id === null && id !== null) {
        known.id = id;
        this.#blocks.identify(known.piece, this.#ids.of(id));
      }
      return known.piece;
    }
    if (this.#allCalls.length >= MAX_CALLS) throw corruptAnswer("too many tool calls");
    const piece = this.#add("tool_use", this.#ids.of(id), name ?? "", this.#placeOf(given));
    const call = { piece, id, inPieces: false, whole: null };
    this.#calls.set(given ?? this.#allCalls.length, call);
    this.#allCalls.push(call);
    this.#keepOrder(given, piece);
    return piece;
  }

  /** Whether a delta is a whole call that comes once more, or a piece of it: only the first has its id. */
  #repeats(known: Call, delta: CallDelta): boolean {
    if (isRepeated(known, delta)) return true;
    if (delta.id !== null || delta.name !== null) {
      const whole = begunAgain(known, delta);
      this.#repeated = whole === null ? null : { whole, characters: 0 };
    }
    const repeated = this.#repeated;
    if (repeated?.whole.startsWith(delta.json, repeated.characters) !== true) return false;
    repeated.characters += delta.json.length;
    return true;
  }

  #placeOf(index: number | null): Place | undefined {
    if (index === null) return undefined;
    const before = this.#early.find((early) => early.index > index)?.piece;
    // Some servers count the texts and reasonings before a call as well: there every call would wait for the answer's end.
    return { before, waits: index > this.#inOrder + this.#said };
  }

  /** Lets early calls begin as soon as those before them have. */
  #keepOrder(index: number | null, piece: Piece): void {
    if (index === null) return;
    if (piece.waits) {
      const at = this.#early.findIndex((early) => early.index > index);
      this.#early.splice(at === -1 ? this.#early.length : at, 0, { index, piece });
    } else this.#inOrder = Math.max(this.#inOrder, index + 1);
    while (this.#calls.has(this.#inOrder)) this.#inOrder += 1;
    const due = this.#early.filter((early) => early.index < this.#inOrder);
    if (due.length === 0) return;
    this.#early = this.#early.slice(due.length);
    for (const early of due) this.#blocks.release(early.piece);
  }

  /** Returns the call under the delta's index, or the last call without one; if another call has the delta's id, that call. */
  #known(index: number | null, id: string | null): Call | undefined {
    const known = index === null ? this.#allCalls.at(-1) : this.#calls.get(index);
    if (known === undefined || id === null || known.id === id) return known;
    return this.#allCalls.findLast((call) => call.id === id) ?? known;
  }

  #finished(): MessagesEvent[] {
    this.#cite(Infinity);
    const { calledTools } = this.#blocks.endAll(isChatLimit(this.#finish));
    const stop = chatStopReason(this.#finish, calledTools, this.#refused);
    this.#over = true;
    return [...this.#blocks.take(), ...messageEnd(foreignEnd(stop), this.usage)];
  }
}

/** Whether a whole call comes once more, as some servers send it at its end. */
const isRepeated = ({ piece, id }: Call, delta: CallDelta): boolean =>
  id !== null &&
  id === delta.id &&
  piece.name === delta.name &&
  piece.json === delta.json &&
  isWholeInput(delta.json);

/** Returns the arguments of a whole call that a delta begins once more, in pieces; null: it does not. */
function begunAgain(known: Call, { id, name, json }: CallDelta): string | null {
  const { piece } = known;
  if (known.inPieces || id === null || id !== known.id || name !== piece.name) return null;
  if (json.length < MIN_REPEATED_CHARACTERS || json.length > piece.json.length) return null;
  // Checked once for each call, as in `isAnother`: a long one could begin again without end.
  if (known.whole === null && isWholeInput(piece.json)) known.whole = piece.json;
  known.inPieces = known.whole === null;
  return known.whole?.startsWith(json) === true ? known.whole : null;
}

/**
 * Whether a delta begins another call than the one that is found under its index or id. Servers without indexes, or
 * with index 0 for every call, show it by a new id, or by a name and arguments after those of a whole call.
 */
function isAnother(known: Call, { id, name, json }: CallDelta, isIndexed: boolean): boolean {
  if (id !== null && id !== known.id)
    return (name !== null && known.piece.name !== "") || (!isIndexed && known.id !== null);
  if (id !== known.id || (isIndexed && id !== null)) return false;
  if (name === null || json.trim() === "" || known.piece.json === "" || known.inPieces) return false;
  // Checked once for each call: arguments in thousands of pieces would be parsed as often.
  known.inPieces = !isWholeInput(known.piece.json);
  return !known.inPieces;
}
