/**
 * Stop sequences that an upstream does not take (rule 2.4): its answer is cut here (cut-at-stops.ts). A text is read
 * once, in any pieces, whatever the number and the length of the sequences (Aho and Corasick, 1975); only text that may
 * still be the beginning of a sequence is held back.
 */
import { bodyLimits } from "../lib/body-limits.ts";
import type { Cursor } from "./cursor.ts";
import type { Dialect } from "./dialect.ts";

/** Reads a client's stop sequences; Chat also takes a single string. @throws ApiError when they are no texts, or too long. */
export function readStops(root: Cursor, field: string): readonly string[] {
  const isOne = root.style === "openai" && typeof root.get(field) === "string";
  const stops = isOne ? [root.requiredText(field)] : (root.texts(field) ?? []);
  if (stops.reduce((sum, stop) => sum + stop.length + 1, 0) > bodyLimits.stops)
    root.fail(field, `more than ${bodyLimits.stops} characters of stop sequences`);
  return stops;
}

/** Chat's official limit of stop sequences. */
const CHAT_STOPS_MAX = 4;

/** Returns the stop sequences that a Chat upstream is sent. */
export const chatStops = (stops: readonly string[]): string[] => stops.slice(0, CHAT_STOPS_MAX);

/**
 * Returns the sequences that are cut here: beyond Chat's limit all, as some servers ignore `stop`. An empty one stops
 * nothing, and one with half a surrogate pair is in no text.
 * @param isRefused whether the upstream is sent no `stop`, as its model does not know it.
 */
export function stopsCutHere(
  upstream: Dialect,
  stops: readonly string[],
  isRefused = false,
): readonly string[] {
  const isTaken =
    upstream === "messages" || (upstream === "chat" && stops.length <= CHAT_STOPS_MAX && !isRefused);
  return isTaken ? [] : stops.filter((stop) => stop !== "" && stop.isWellFormed());
}

/** The part of a text that can be passed on so far. */
export interface CutText {
  readonly text: string;
  /** The sequence that was completed, which ends the text; null: none. */
  readonly stop: string | null;
}

/** The sequences of a request as an automaton: each node is a beginning of one of them, node 0 the empty one. */
export class StopSequences {
  /** Next node, by node × 65,536 + UTF-16 code unit. */
  readonly #next = new Map<number, number>();
  /** For each node, the longest other node that it ends in (its failure link). */
  readonly #shorter: number[] = [0];
  /** Length of each node in code units: so much text is held back there. */
  readonly #length: number[] = [0];
  /** For each node, the longest sequence that it ends in. */
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
    // Shorter nodes first: the failure links of longer ones are found through them.
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

  /** Returns the text that was held back, at the end of a text without a sequence. */
  end(): string {
    return this.#held;
  }
}
