/**
 * The URLs that a conversation has already shown (service.md "Opening pages", rule 3.13): those in user text, in search
 * and fetch results, and in annotations. The whole URL counts, except its fragment, so that a model cannot carry data out
 * in a path that it made up, nor in one that it made an engine echo. Pure, but for the pauses of `addOpenedPage`.
 */
import { pack, packedValue, type Packed } from "../../lib/packed-map.ts";
import { Slices } from "../../lib/slices.ts";
import { plainUrl } from "../plain-url.ts";
import { plain, withoutJsonEscapes, WrittenUrls } from "./written-urls.ts";

/** A context in the form that threads pass to each other: plain data. */
export interface PackedContext {
  readonly urls: Packed;
  readonly words: readonly string[];
  readonly queries: readonly string[];
}

/** URLs that may be opened; grows while the tool loop runs. */
export class PriorContext {
  /** Each URL by itself and by its one spelling, as it was shown. */
  readonly #urls = new Map<string, string>();
  readonly #written = new WrittenUrls();
  /** The newest texts that the model did not write, in which an address may stand without its scheme. */
  readonly #words: string[] = [];
  /** `#words` in one spelling, which takes milliseconds; null: not needed since the last text was added. */
  #plainWords: readonly string[] | null = null;
  /** URLs of a large conversation, which another thread has read. */
  readonly #packed: Packed | null;

  constructor(packed: PackedContext | null = null) {
    this.#packed = packed?.urls ?? null;
    for (const words of packed?.words ?? []) this.#words.push(words);
    for (const query of packed?.queries ?? []) this.#written.addQuery(query);
  }

  pack(): PackedContext {
    const urls = pack(Array.from(this.#urls, ([key, url]) => [key, url === key ? "" : url] as const));
    return { urls, words: this.#words, queries: this.#written.queries };
  }

  /** Adds every URL in a text that the model did not write, up to a number that no reader gets through. */
  addText(text: string): void {
    this.#words.push(text.slice(-MAX_WORDS_CHARACTERS));
    if (this.#words.length > MAX_WORDS) this.#words.shift();
    this.#plainWords = null;
    for (const url of urlsIn(text)) this.addUrl(url);
  }

  /** Adds one URL. */
  addUrl(text: string): void {
    const url = webUrl(text);
    if (url === null || this.#urls.size >= MAX_URLS) return;
    this.#urls.set(url.href, url.href);
    const spelling = plainUrl(url);
    if (spelling !== url.href && this.#shownAs(spelling) === null) this.#urls.set(spelling, url.href);
  }

  /** Adds a URL as a model asked for it, which an earlier request opened: in the one spelling that tells a server no more. */
  addOpenedUrl(text: string): void {
    const url = webUrl(text);
    if (url !== null && !this.has(text)) this.addUrl(plainUrl(url));
  }

  /** Adds an opened page: its own address, and the links in it. */
  addPage(url: string, text: string): void {
    this.addUrl(url);
    for (const link of urlsIn(text)) this.addUrl(link);
  }

  /** Adds a page that was opened just now, in slices with pauses for others: a hostile page may consist of addresses alone. */
  async addOpenedPage(url: string, text: string): Promise<void> {
    this.addUrl(url);
    const slices = new Slices(SLICE_MS);
    for (const links of urlsByMark(text)) {
      if (slices.usedUp) await slices.pause();
      for (const link of links) this.addUrl(link);
    }
  }

  /** Adds a model's search query. Must precede its results: a URL in the query does not count as found (rule 7.11). */
  addQuery(query: string): void {
    this.#written.addQuery(query);
  }

  /** Adds a search result: its address and those in its text, except those that the model wrote into a query. */
  addFound(url: string, text: string): void {
    if (!this.isOwnWriting(url)) this.addUrl(url);
    for (const found of urlsIn(text)) if (!this.#isOwnWriting(found, true)) this.addUrl(found);
  }

  /**
   * Returns the URL, without its fragment, as it was shown, whatever spelling of it is asked for: a model could tell a server
   * something by what it escapes. Null: it was not shown.
   */
  find(text: string): string | null {
    const url = webUrl(text);
    return url === null ? null : (this.#shownAs(url.href) ?? this.#shownAs(plainUrl(url)));
  }

  has(url: string): boolean {
    return this.find(url) !== null;
  }

  #shownAs(key: string): string | null {
    const here = this.#urls.get(key);
    if (here !== undefined || this.#packed === null) return here ?? null;
    const packed = packedValue(this.#packed, key);
    return packed === undefined ? null : packed || key;
  }

  /** Whether the model wrote this URL into a query and neither the user nor an earlier result has shown it. */
  isOwnWriting(url: string): boolean {
    return this.#isOwnWriting(url, false);
  }

  /** Whether a URL was shown in this very spelling. */
  #isShown(text: string): boolean {
    const url = webUrl(text);
    return url !== null && this.#shownAs(url.href) === url.href;
  }

  /** @param inText the URL stands in a text, which may go on behind it without a blank. */
  #isOwnWriting(url: string, inText: boolean): boolean {
    const parsed = URL.parse(url);
    if (parsed === null || this.#isShown(url)) return false;
    const written = this.#written.find(parsed, inText);
    if (written === null) return false;
    // Another spelling of what was shown: that one is open.
    if (this.has(url)) return true;
    // A user who wrote `example.com` has shown `https://example.com/`: it carries no secret.
    this.#plainWords ??= this.#words.map(plain);
    return !this.#plainWords.some((words) => words.includes(written));
  }
}

const SLICE_MS = 5;
/** Texts in `#words`, the newest, and characters of each, its end. */
const MAX_WORDS = 8;
const MAX_WORDS_CHARACTERS = 8_192;
const MAX_URLS = 100_000;
/** Different addresses of one text that are looked at. */
const MAX_URLS_IN_TEXT = 10_000;
/** Readings of them that are parsed: each takes microseconds, and more would delay everybody else. */
const MAX_READINGS = 40_000;
/** Marks of one text that are looked at, repeated ones included, for the same reason. */
const MAX_MARKS = 40_000;
/** Bounds on the characters that are read after all marks, of a short text and of a long one; those with escapes cost more. */
const MIN_READ = 64 * 1024;
const MAX_READ = 1024 * 1024;
const ESCAPES_COST = 2;
/** Characters that are searched for marks at once. */
const WINDOW = 256 * 1024;
/** Characters read after a mark. URLs over 250 characters are never fetched; the rest is for text that follows without a blank. */
const MAX_RUN = 512;
const MAX_TRIMMED = 8;

/** Parses an address of the web, without its fragment; null: it is none. */
function webUrl(text: string): URL | null {
  const url = URL.parse(text);
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:")) return null;
  url.hash = "";
  return url;
}

/** Characters that no URL in running text has. Joiners do stand in addresses, of Persian pages for one. */
const ENDS = String.raw`\s"<>\\\u0000-\u001f\u007f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069`;
/** Characters that may end a URL or belong to it: `it's`, or brackets of a Chinese title. */
const PAUSES = "'`\u3001\u3002\uff01\uff08\uff0c\uff1b\uff1f\u3008\u300a\u300c\u300e\u3010\u201c";
/** Places in a run where a URL is taken to end, beside the run's end: a sentence without blanks has many. */
const MAX_PAUSES = 4;
const PIECE = `[^${ENDS}${PAUSES}]`;

/** Matches up to a character that ends a URL in running text: beyond a pause only with a letter or the like, never with another URL. */
const run = new RegExp(
  String.raw`${PIECE}+(?:[${PAUSES}](?=[\p{L}\p{N}/%_-])(?!${PIECE}*?:\/\/)${PIECE}+){0,${MAX_PAUSES}}`,
  "iuy",
);

/** The same with JSON's escapes in it, up to an escape of a character that ends a URL. */
const escapedRun = new RegExp(
  String.raw`(?:${run.source}|\\/|\\u00(?!2[02]|3[ce]|5c|7f)[2-7][0-9a-f])+`,
  "iuy",
);

/** The mark between scheme and host, also escaped as PHP writes JSON, and as JSON inside of a page is written. */
const MARK = /(?::|\\u003a)(?:\\?\/|\\u002f){2}/gi;
const PLAIN_MARK = "://";
const ESCAPE_LENGTH = String.raw`\u0000`.length;
const MAX_MARK = 3 * ESCAPE_LENGTH;
const MAX_SCHEME = "https".length;

/** Yields every reading of every URL in a text: with and without punctuation that may belong to the sentence, also out of JSON. */
function* urlsIn(text: string): Generator<string> {
  for (const urls of urlsByMark(text)) yield* urls;
}

/** The same, as one list for each mark; also an empty list now and then, so that the caller can pause. */
function* urlsByMark(text: string): Generator<readonly string[]> {
  const found = new Set<string>();
  // URLs may overlap (one in another's query), but a text made of schemes must not be read 500 times over.
  let budget = Math.min(Math.max(2 * text.length, MIN_READ), MAX_READ);
  let marks = 0;
  let urls = 0;
  for (const { at, mark } of marksIn(text)) {
    marks += mark === "" ? 0 : 1;
    if (budget <= 0 || marks > MAX_MARKS || urls >= MAX_URLS_IN_TEXT) return;
    if (found.size >= MAX_READINGS) return;
    const scheme = mark === "" ? undefined : schemeBefore(text, at);
    const fresh: string[] = [];
    if (scheme !== undefined) {
      const from = at + mark.length;
      const rests = restsOf(text.slice(from, from + MAX_RUN), mark === PLAIN_MARK);
      budget -= rests.cost;
      for (const rest of rests.found) {
        for (const reading of readings(`${scheme}://${rest}`)) {
          if (found.has(reading)) continue;
          found.add(reading);
          fresh.push(reading);
        }
      }
    }
    urls += fresh.length === 0 ? 0 : 1;
    yield fresh;
  }
}

/** Yields every mark of a text, and an empty one at the end of each window. */
function* marksIn(text: string): Generator<{ readonly at: number; readonly mark: string }> {
  for (let from = 0; from < text.length; from += WINDOW) {
    for (const { 0: mark, index } of text.slice(from, from + WINDOW + MAX_MARK - 1).matchAll(MARK))
      if (index < WINDOW) yield { at: from + index, mark };
    yield { at: from + WINDOW, mark: "" };
  }
}

/** Returns the scheme that ends at `at`; each of its letters may be escaped. */
function schemeBefore(text: string, at: number): string | undefined {
  const before = text.slice(Math.max(0, at - MAX_SCHEME * ESCAPE_LENGTH), at);
  const letters = before.includes("\\") ? withoutJsonEscapes(before) : before;
  return /https?$/i.exec(letters.slice(-MAX_SCHEME))?.[0];
}

/** Returns what may follow an address' mark, and the cost of finding it in characters. */
function restsOf(
  ahead: string,
  isPlain: boolean,
): { readonly found: readonly string[]; readonly cost: number } {
  const rest = matchOf(run, ahead);
  const plain = isPlain && rest !== "" ? [rest] : [];
  // Only an escape could continue it.
  if (isPlain && ahead[rest.length] !== "\\") return { found: plain, cost: rest.length };
  const escaped = matchOf(escapedRun, ahead);
  const unescaped = matchOf(run, withoutJsonEscapes(escaped));
  return { found: unescaped === "" ? plain : [...plain, unescaped], cost: ESCAPES_COST * escaped.length };
}

function matchOf(sticky: RegExp, text: string): string {
  sticky.lastIndex = 0;
  return sticky.exec(text)?.[0] ?? "";
}

/** Where a URL may end within its run: at a pause, before the next column of a table, a dash, or HTML's quotation mark. */
const mayEnd = new RegExp(
  String.raw`[${PAUSES},;|\uff1a\uff5c\u2013\u2014\u2018\u2019\u00ab\u00bb]|&(?:quot|apos|[lg]t|#3[49]|#6[02]);`,
  "g",
);

/** Returns the URLs that a run may be: one up to each of the first such places, and the whole. */
function readings(whole: string): string[] {
  const urls: string[] = [];
  const closed = upToUnbalanced(whole);
  mayEnd.lastIndex = 0;
  for (let ends = 0; ends < MAX_PAUSES; ends += 1) {
    const end = mayEnd.exec(closed)?.index;
    if (end === undefined) break;
    addTrimmed(closed.slice(0, end), urls);
  }
  addTrimmed(closed, urls);
  if (closed !== whole && goesOn.test(whole.slice(closed.length, closed.length + 3))) addTrimmed(whole, urls);
  return urls;
}

/** Whether a bracket that the URL did not open may belong to it all the same, as in `smile).html`. */
const goesOn = /^.\.?[\p{L}\p{N}/%_-]/u;

/** Adds a URL, also without the punctuation at its end and with its ampersands decoded. */
function addTrimmed(whole: string, urls: string[]): void {
  let url = whole;
  for (let trimmed = 0; ; trimmed += 1) {
    urls.push(url);
    if (url.includes("&amp;")) urls.push(url.replaceAll("&amp;", "&"));
    if (trimmed === MAX_TRIMMED || !trimmable.test(url)) return;
    url = url.slice(0, -1);
  }
}

const trimmable = /[.,;:!?)\]}*_~|\u2019\u2026\u00bb\u203a]$/;

const openers: Readonly<Record<string, string>> = {
  ")": "(",
  "]": "[",
  "}": "{",
  "\uff09": "\uff08",
  "\u3009": "\u3008",
  "\u300b": "\u300a",
  "\u300d": "\u300c",
  "\u300f": "\u300e",
  "\u3011": "\u3010",
  "\u201d": "\u201c",
};
const brackets = new RegExp(
  `[${[...Object.keys(openers), ...Object.values(openers)].map((one) => `\\${one}`).join("")}]`,
  "g",
);

/** Cuts before a bracket that the URL did not open: `[title](https://example.com/a_(b)).` */
function upToUnbalanced(text: string): string {
  const open: string[] = [];
  for (const { 0: bracket, index } of text.matchAll(brackets)) {
    const opener = openers[bracket];
    if (opener === undefined) open.push(bracket);
    else if (open.pop() !== opener) return text.slice(0, index);
  }
  return text;
}
