/**
 * Finds the markdown links of a model's text and turns those that point at a tool result into citations
 * (service.md "Citations in Responses and Chat", rules 3.11–3.12). Pure.
 */
import { codePoints } from "../lib/code-points.ts";
import { pack, packedSize, packedValue, type Packed } from "../lib/packed-map.ts";
import { plainUrl } from "./plain-url.ts";

/** A page or post that a tool result has shown to the model. */
export interface CitedSource {
  readonly url: string;
  readonly title: string | null;
  /** The result's own text, from which a Messages citation quotes. */
  readonly text: string;
}

/** One `[title](url)` whose url is that of a source. */
export interface LinkCitation {
  /** Unicode code points from the start of the text, over the whole link; `endIndex` is exclusive. */
  readonly startIndex: number;
  readonly endIndex: number;
  /** The URL of the tool result: a fragment that the model wrote is dropped. */
  readonly url: string;
  /** The source's title, or the link's own text without one. */
  readonly title: string;
  readonly source: CitedSource;
}

/** Sources by their URL in one spelling. */
export class CitedSources {
  readonly #byUrl = new Map<string, CitedSource>();
  /** Sources of a large conversation, which another thread has read. */
  readonly #packed: Packed | null;

  constructor(packed: Packed | null = null) {
    this.#packed = packed;
  }

  pack(): Packed {
    return pack(
      Array.from(
        this.#byUrl,
        ([key, { url, title, text }]) => [key, JSON.stringify({ url, title, text })] as const,
      ),
    );
  }

  /**
   * Adds a source. The first one of a URL wins, as the model saw it first, unless only the other has a title.
   * @param knownAs the URL by which the model knows it.
   */
  add(source: CitedSource, knownAs: string = source.url): void {
    const key = keyOf(knownAs);
    if (key === null) return;
    const known = this.#byUrl.get(key);
    if (known === undefined || better(known, source) === source) this.#byUrl.set(key, source);
  }

  find(url: string): CitedSource | undefined {
    const key = keyOf(url);
    if (key === null) return undefined;
    // Sources of the conversation so far win, as the model saw them first.
    const packed = this.#packed === null ? undefined : packedValue(this.#packed, key);
    const found = this.#byUrl.get(key);
    return packed === undefined ? found : better(JSON.parse(packed) as CitedSource, found);
  }

  get size(): number {
    return this.#byUrl.size + (this.#packed === null ? 0 : packedSize(this.#packed));
  }
}

/** The second of two sources of one URL if it alone has a title, else the first. */
const better = (first: CitedSource, second: CitedSource | undefined): CitedSource =>
  !first.title && second?.title ? second : first;

function keyOf(text: string): string | null {
  const url = URL.parse(text);
  return url === null ? null : plainUrl(url);
}

/** Longest link target; a longer one is no link to a result. */
const MAX_TARGET = 4_096;
/** Longest label, the bracket included. */
const MAX_LABEL = 4_096;

/** Finds every link to a source, in the order of the text, in time linear in its length. */
export function linkCitations(text: string, sources: CitedSources): LinkCitation[] {
  if (sources.size === 0) return [];
  const found: LinkCitation[] = [];
  const labels = new Labels(text);
  let points = 0;
  let counted = 0;
  let from = 0;
  for (;;) {
    const middle = text.indexOf("](", from);
    if (middle === -1) return found;
    from = middle + 2;
    const end = targetEnd(text, middle + 2);
    if (end === null) continue;
    const target = text.slice(middle + 2, end).trim();
    const url =
      target.startsWith("<") && target.endsWith(">") ? target.slice(1, -1) : (target.split(/\s/, 1)[0] ?? "");
    const source = sources.find(url);
    const start = source === undefined ? null : labels.startOf(middle);
    if (source === undefined || start === null) continue;
    points += codePoints(text, counted, start);
    const startIndex = points;
    points += codePoints(text, start, end + 1);
    counted = end + 1;
    from = end + 1;
    labels.passLink(end + 1);
    const label = text.slice(start + 1, middle);
    const title = source.title === null || source.title === "" ? label : source.title;
    found.push({ startIndex, endIndex: points, url: source.url, title, source });
  }
}

/**
 * Returns the index of the `)` that closes the target; parentheses within it balance. The `](` of another link ends the
 * search, so that in no text do two searches overlap; a single bracket may belong to the address.
 */
function targetEnd(text: string, start: number): number | null {
  let depth = 0;
  const limit = Math.min(text.length, start + MAX_TARGET);
  for (let index = start; index < limit; index += 1) {
    const char = text.charCodeAt(index);
    if (char === 0x28) depth += 1;
    else if (char === 0x29) {
      if (depth === 0) return index;
      depth -= 1;
    } else if (char === 0x0a || (char === 0x5d && text.charCodeAt(index + 1) === 0x28)) return null;
  }
  return null;
}

/** Finds where labels begin. Reads a text only once from start to end, however many labels it seems to have. */
class Labels {
  readonly #text: string;
  /** Brackets that are open at `#at`, the innermost last. */
  #open: number[] = [];
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** Returns the index of the `[` of the label that ends at `close`, which grows with each call; brackets within it balance. */
  startOf(close: number): number | null {
    for (; this.#at < close; this.#at += 1) {
      const char = this.#text.charCodeAt(this.#at);
      if (char === 0x5b) this.#open.push(this.#at);
      else if (char === 0x5d) this.#open.pop();
    }
    const start = this.#open.at(-1);
    return start !== undefined && start >= close - MAX_LABEL ? start : null;
  }

  /** Continues after a link: brackets before its end open no later label. */
  passLink(end: number): void {
    this.#open = [];
    this.#at = end;
  }
}
