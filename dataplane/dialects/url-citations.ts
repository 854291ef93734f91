/**
 * Citations of web pages by an upstream that searches by itself, which Chat and Responses both have and Messages has
 * not (rule 2.1). In the hub they stand beside the text that they are of, and count in it alone.
 */
import type { Carry } from "./codecs.ts";
import { arrayOf, countOf, objectOf, stringOf, textOf } from "./fields.ts";
import type { JsonValue, UrlCitation } from "./messages/types.ts";

/** Of one list, in however many pieces it comes; what stands behind is left out. */
export const CITATIONS_MAX = 1_000;

/** Whether the client may be shown them: server tools make citations of their own. */
export const showsCitations = ({ dialect, serverTools, compacts }: Carry): boolean =>
  dialect !== "messages" && !serverTools && !compacts;

/** A list of an upstream's, in the form of either dialect; what cites no page is left out. */
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

/** Characters of one list that comes in pieces. */
const PIECES_MAX_CHARACTERS = 4 * 1024 * 1024;

/** One list that comes in pieces: some servers tell each citation once, some all so far again with each piece. */
export class StreamedCitations {
  readonly #told = new Set<string>();
  #characters = 0;

  /** Those of a piece that were not told before. */
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

/** As they count in a text that has this many code points more before theirs, or fewer; those that begin before it are left out. */
export const movedBy = (citations: readonly UrlCitation[], points: number): readonly UrlCitation[] =>
  points === 0
    ? citations
    : citations.flatMap((one) =>
        one.start_index + points < 0
          ? []
          : [{ ...one, start_index: one.start_index + points, end_index: one.end_index + points }],
      );

/** Those of a text that is cut after this many code points. */
export const citationsWithin = (citations: readonly UrlCitation[], points: number): UrlCitation[] =>
  citations.filter((one) => one.end_index <= points);

/** Characters, about, that they take as JSON. */
export const lengthOfCitations = (citations: readonly UrlCitation[]): number =>
  citations.reduce((sum, one) => sum + lengthOfCitation(one), 0);

const lengthOfCitation = ({ url, title }: UrlCitation): number => 80 + url.length + title.length;
