/**
 * Citations of web pages by an upstream that searches by itself, which Chat and Responses both have and Messages has
 * not (rule 2.1). In the hub they stand beside the text that they are of, and count in it alone.
 */
import type { Carry } from "./codecs.ts";
import { arrayOf, countOf, objectOf, stringOf, textOf } from "./fields.ts";
import type { JsonValue, UrlCitation } from "./messages/types.ts";

/** Most citations of one list, in however many pieces it comes; further ones are left out. */
export const CITATIONS_MAX = 1_000;

/** Whether the client may be shown the upstream's citations: server tools make their own. */
export const showsCitations = ({ dialect, serverTools, compacts }: Carry): boolean =>
  dialect !== "messages" && !serverTools && !compacts;

/** Reads an upstream's list in the form of either dialect; entries that cite no page are left out. */
export const readUrlCitations = (value: unknown): UrlCitation[] =>
  (arrayOf(value) ?? []).slice(0, CITATIONS_MAX).flatMap(readCitation);

function readCitation(value: JsonValue): UrlCitation[] {
  const entry = objectOf(value);
  if (entry?.["type"] !== "url_citation") return [];
  // Chat nests what Responses has flat.
  const cited = objectOf(entry["url_citation"]) ?? entry;
  const url = textOf(cited["url"]);
  if (url === null) return [];
  return [
    {
      start_index: countOf(cited["start_index"]),
      end_index: countOf(cited["end_index"]),
      url,
      title: stringOf(cited["title"]) ?? "",
    },
  ];
}

/** Most characters of one list that comes in pieces. */
const PIECES_MAX_CHARACTERS = 4 * 1024 * 1024;

/** One list that comes in pieces: some servers send each citation once, some repeat all so far with each piece. */
export class StreamedCitations {
  readonly #told = new Set<string>();
  #characters = 0;

  /** Returns the citations of a piece that did not come before. */
  untold(citations: readonly UrlCitation[]): UrlCitation[] {
    return citations.filter((one) => {
      const key = `${one.start_index} ${one.end_index} ${one.url}`;
      const characters = this.#characters + lengthOfCitation(one);
      if (this.#told.has(key) || this.#told.size >= CITATIONS_MAX || characters > PIECES_MAX_CHARACTERS)
        return false;
      this.#told.add(key);
      this.#characters = characters;
      return true;
    });
  }
}

/**
 * Moves citations by this many code points, for a text that has more or fewer before theirs; citations that would begin
 * before the text are left out.
 */
export const movedBy = (citations: readonly UrlCitation[], points: number): readonly UrlCitation[] =>
  points === 0
    ? citations
    : citations.flatMap((one) =>
        one.start_index + points < 0
          ? []
          : [{ ...one, start_index: one.start_index + points, end_index: one.end_index + points }],
      );

/** Returns the index of the text that holds a code point, else of the last; `from`: the code points before a text. */
export function textAt(texts: readonly { readonly from: number }[], point: number): number {
  let low = 0;
  let high = texts.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((texts[middle]?.from ?? 0) <= point) low = middle;
    else high = middle;
  }
  return low;
}

/** Returns the citations of a text that is cut after this many code points. */
export const citationsWithin = (citations: readonly UrlCitation[], points: number): UrlCitation[] =>
  citations.filter((one) => one.end_index <= points);

/** Estimates the characters that citations take as JSON. */
export const lengthOfCitations = (citations: readonly UrlCitation[]): number =>
  citations.reduce((sum, one) => sum + lengthOfCitation(one), 0);

const lengthOfCitation = ({ url, title }: UrlCitation): number => 80 + url.length + title.length;
