/**
 * A forgiving HTML tokenizer that looks at each character a bounded number of times, whatever the page: it decides
 * whether a page is small enough for a real parser, strips parts that would only cost the parser time, and yields readable
 * text from pages that are too large for it.
 *
 * Why not htmlparser2 (12.0.0, 18 pages of 10 MB): its Parser is not done with repeated `<div>`s after 30 s, this takes 0.2 s;
 * its Tokenizer keeps the bounds (0.03 to 0.4 s, this 0.001 to 0.9 s), but needs six packages to save some fifty lines.
 */
import { linkTarget } from "./link-target.ts";

/**
 * Limits beyond which a page is read by `plainText` instead of a DOM: building one could take minutes and gigabytes.
 * Finding the article takes the square of the depth and more; pages that people write are a few dozen elements deep.
 */
const DOM_LIMITS = {
  bytes: 2_000_000,
  elements: 50_000,
  depth: 160,
  attributes: 256,
  depths: 2_000_000,
} as const;

export interface Measure {
  readonly elements: number;
  /** Deepest nesting, counted generously for elements that close themselves. */
  readonly depth: number;
  /** Sum of the depths of all elements. */
  readonly depths: number;
  /** Most attributes on one element. */
  readonly attributes: number;
  /** The page without scripts, styles and comments. */
  readonly html: string;
}

const voidElements = new Set(
  "area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr".split(
    " ",
  ),
);
/** Elements that a sibling's start tag ends, so that a run of them is no nesting. */
const selfClosing = new Set(
  "p li dt dd tr td th thead tbody tfoot option optgroup colgroup rp rt".split(" "),
);
/** Elements whose content is text up to their own end tag. */
const rawText = new Set(["script", "style", "title", "textarea", "xmp", "iframe", "noembed", "noframes"]);

interface Handler {
  /** Text between tags, entities not yet decoded. */
  text?(from: number, to: number): void;
  start(name: string, from: number, to: number, attributes: number): void;
  end(name: string, from: number, to: number): void;
  /** Content of a raw-text element, after its start tag. */
  raw?(name: string, from: number, to: number): void;
  comment?(from: number, to: number): void;
}

const isLetter = (code: number) => (code >= 97 && code <= 122) || (code >= 65 && code <= 90);
/** Blank, tab, line feed, form feed, carriage return. */
const isBlank = (code: number) => code === 32 || (code >= 9 && code <= 13 && code !== 11);

/** Walks the page once and calls the handler for each part. */
function walk(html: string, handler: Handler): void {
  let textFrom = 0;
  let at = 0;
  while (at < html.length) {
    const open = html.indexOf("<", at);
    if (open < 0) break;
    const next = html.charCodeAt(open + 1);
    if (!isLetter(next) && next !== 33 && next !== 47 && next !== 63) {
      at = open + 1;
      continue;
    }
    if (open > textFrom) handler.text?.(textFrom, open);
    at = markup(html, open, handler);
    textFrom = at;
  }
  if (textFrom < html.length) handler.text?.(textFrom, html.length);
}

/** Reads the tag, comment or declaration at `open` and returns the position after it. */
function markup(html: string, open: number, handler: Handler): number {
  const next = html.charCodeAt(open + 1);
  if (isLetter(next)) {
    const tag = startTag(html, open);
    handler.start(tag.name, open, tag.end, tag.attributes);
    return rawText.has(tag.name) ? rawContent(html, tag.name, tag.end, handler) : tag.end;
  }
  if (html.startsWith("<!--", open)) {
    const end = after(html, "-->", open + 2);
    handler.comment?.(open, end);
    return end;
  }
  const end = after(html, ">", open);
  const name = next === 47 ? tagName(html, open + 2) : "";
  if (name !== "") handler.end(name, open, end);
  return end;
}

/** Returns the position after the next `mark`, or the end of the page. */
function after(html: string, mark: string, from: number): number {
  const found = html.indexOf(mark, from);
  return found < 0 ? html.length : found + mark.length;
}

const MAX_NAME = 64;

function tagName(html: string, from: number): string {
  if (!isLetter(html.charCodeAt(from))) return "";
  let end = from;
  while (end < html.length && end - from < MAX_NAME) {
    const code = html.charCodeAt(end);
    if (isBlank(code) || code === 47 || code === 62) break;
    end += 1;
  }
  return html.slice(from, end).toLowerCase();
}

/** Reads a start tag as browsers do: quotes count only around attribute values. */
function startTag(html: string, open: number): { name: string; end: number; attributes: number } {
  const name = tagName(html, open + 1);
  let at = open + 1 + name.length;
  let attributes = 0;
  while (at < html.length) {
    const code = html.charCodeAt(at);
    if (code === 62) return { name, end: at + 1, attributes };
    if (isBlank(code) || code === 47) {
      at += 1;
      continue;
    }
    attributes += 1;
    at = attribute(html, at);
  }
  return { name, end: html.length, attributes };
}

/** Returns the position after the attribute that begins at `from`. */
function attribute(html: string, from: number): number {
  let at = from + 1;
  for (; at < html.length; at += 1) {
    const code = html.charCodeAt(at);
    if (code === 61 || code === 62 || code === 47 || isBlank(code)) break;
  }
  while (isBlank(html.charCodeAt(at))) at += 1;
  if (html.charCodeAt(at) !== 61) return at;
  at += 1;
  while (isBlank(html.charCodeAt(at))) at += 1;
  const quote = html.charCodeAt(at);
  if (quote === 34 || quote === 39) return after(html, quote === 34 ? '"' : "'", at + 1);
  for (; at < html.length; at += 1) {
    const code = html.charCodeAt(at);
    if (code === 62 || isBlank(code)) break;
  }
  return at;
}

/** Skips to the raw element's end tag; an element that is never closed swallows the rest, as in browsers. */
function rawContent(html: string, name: string, from: number, handler: Handler): number {
  const close = new RegExp(`</${name}(?=[\\s/>])`, "gi");
  close.lastIndex = from;
  const to = close.exec(html)?.index ?? html.length;
  handler.raw?.(name, from, to);
  return to;
}

/** Counts what `fitsDom` judges, and strips scripts, styles and comments. */
export function measure(html: string): Measure {
  let elements = 0;
  let depth = 0;
  let deepest = 0;
  let depths = 0;
  let most = 0;
  let kept = 0;
  const pieces: string[] = [];
  const cut = (from: number, to: number) => {
    pieces.push(html.slice(kept, from));
    kept = to;
  };
  walk(html, {
    start(name, from, to, attributes) {
      elements += 1;
      depths += depth;
      most = Math.max(most, attributes);
      if (name === "script" || name === "style") cut(from, to);
      if (voidElements.has(name) || selfClosing.has(name)) return;
      depth += 1;
      deepest = Math.max(deepest, depth);
    },
    raw(name, from, to) {
      if (name === "script" || name === "style") cut(from, to);
    },
    end(name, from, to) {
      if (name === "script" || name === "style") cut(from, to);
      if (depth > 0 && !voidElements.has(name) && !selfClosing.has(name)) depth -= 1;
    },
    comment: cut,
  });
  pieces.push(html.slice(kept));
  return { elements, depth: deepest, depths, attributes: most, html: pieces.join("") };
}

/** Whether the page is small enough for a DOM. */
export function fitsDom(bytes: number, measured: Measure): boolean {
  return (
    bytes <= DOM_LIMITS.bytes &&
    measured.elements <= DOM_LIMITS.elements &&
    measured.depth <= DOM_LIMITS.depth &&
    measured.depths <= DOM_LIMITS.depths &&
    measured.attributes <= DOM_LIMITS.attributes
  );
}

/** Elements that begin and end a paragraph of text. */
const blocks = new Set(
  (
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure " +
    "footer form h1 h2 h3 h4 h5 h6 header hr html legend li main nav ol p pre section summary table tbody tfoot thead tr ul"
  ).split(" "),
);
/** Navigation and similar elements, which are left out if they are closed. */
const boilerplate = new Set([
  "nav",
  "footer",
  "aside",
  "svg",
  "noscript",
  "template",
  "select",
  "button",
  "head",
]);

/**
 * Returns readable text with headings, list marks and absolute links, without a DOM.
 * @param mostUnits UTF-16 units after which the rest of the text is left out.
 */
export function plainText(
  html: string,
  baseUrl: string,
  mostUnits = Number.POSITIVE_INFINITY,
): { title: string | null; text: string } {
  const out: string[] = [];
  let room = mostUnits;
  const skip = new Skipper(html);
  let title: string | null = null;
  let address: string | null = null;
  let linkAt = 0;
  const put = (text: string) => {
    if (text === "" || room <= 0) return;
    out.push(text);
    room -= text.length;
  };
  walk(html, {
    text(from, to) {
      if (!skip.active && room > 0) put(decodeEntities(html.slice(from, to)).replace(/[\s\u00a0]+/g, " "));
    },
    start(name, from, to) {
      skip.start(name, to);
      if (skip.active || room <= 0) return;
      if (blocks.has(name)) put("\n\n");
      if (name === "br") put("\n");
      if (/^h[1-6]$/.test(name)) put(`${"#".repeat(Number(name[1]))} `);
      if (name === "li") put("- ");
      if (name === "td" || name === "th") put(" | ");
      if (name === "a" && address === null) {
        address = target(html.slice(from, to), baseUrl);
        // The bracket is written when the link ends; a link that never does stays plain text.
        linkAt = out.push("") - 1;
      }
    },
    end(name) {
      if (skip.end(name)) return;
      if (name === "a" && address !== null) {
        out[linkAt] = "[";
        put(`](${linkTarget(address)})`);
        address = null;
      }
      if (blocks.has(name)) put("\n\n");
    },
    raw(name, from, to) {
      if (name === "title") title ??= decodeEntities(html.slice(from, to)).replace(/\s+/g, " ").trim();
      else if ((name === "textarea" || name === "xmp") && !skip.active) put(html.slice(from, to));
    },
  });
  return { title: title === "" ? null : title, text: tidyText(out.join("")) };
}

/** Tracks whether the walk is inside boilerplate; an element that is never closed hides nothing. */
class Skipper {
  readonly #html: string;
  readonly #unclosed = new Set<string>();
  #name = "";
  #depth = 0;

  constructor(html: string) {
    this.#html = html;
  }

  get active(): boolean {
    return this.#depth > 0;
  }

  start(name: string, from: number): void {
    if (this.active) {
      if (name === this.#name) this.#depth += 1;
    } else if (boilerplate.has(name) && this.#isClosed(name, from)) {
      this.#name = name;
      this.#depth = 1;
    }
  }

  /** Returns true when the end tag belongs to a skipped part. */
  end(name: string): boolean {
    if (!this.active) return false;
    if (name === this.#name) this.#depth -= 1;
    return true;
  }

  /** Looks ahead once per element; a name that was unclosed once is not searched again, which keeps this linear. */
  #isClosed(name: string, from: number): boolean {
    if (this.#unclosed.has(name)) return false;
    const close = new RegExp(`</${name}[\\s>]`, "gi");
    close.lastIndex = from;
    if (close.test(this.#html)) return true;
    this.#unclosed.add(name);
    return false;
  }
}

const MAX_TAG_FOR_LINK = 8_192;

/** Returns the absolute http(s) URL of an `<a …>` tag. */
function target(tag: string, baseUrl: string): string | null {
  if (tag.length > MAX_TAG_FOR_LINK) return null;
  const found = /\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))/i.exec(tag);
  const href = found?.[1] ?? found?.[2] ?? found?.[3];
  if (href === undefined || href.startsWith("#") || !URL.canParse(decodeEntities(href), baseUrl)) return null;
  const url = new URL(decodeEntities(href), baseUrl);
  return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
}

// prettier-ignore
const namedEntities: Readonly<Record<string, string>> = {
  amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: " ", copy: "©", reg: "®", trade: "™", hellip: "…", mdash: "—", ndash: "–",
  lsquo: "‘", rsquo: "’", ldquo: "“", rdquo: "”", laquo: "«", raquo: "»", bull: "•", middot: "·", times: "×", deg: "°", euro: "€",
  pound: "£", yen: "¥", sect: "§", para: "¶", auml: "ä", ouml: "ö", uuml: "ü", Auml: "Ä", Ouml: "Ö", Uuml: "Ü", szlig: "ß",
  eacute: "é", egrave: "è", agrave: "à", ccedil: "ç", ntilde: "ñ", rarr: "→", larr: "←", shy: "", zwj: "", zwnj: "", ensp: " ", emsp: " ", thinsp: " ",
};

/** Decodes numeric and common named entities. It expands no others, so no text can grow. */
export function decodeEntities(text: string): string {
  if (!text.includes("&")) return text;
  return text.replace(
    /&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([a-zA-Z]{2,8}));?/g,
    (whole, decimal, hex, name) => {
      if (typeof name === "string")
        return Object.hasOwn(namedEntities, name) ? (namedEntities[name] ?? whole) : whole;
      const code = typeof decimal === "string" ? Number(decimal) : Number.parseInt(String(hex), 16);
      const valid = code > 0 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
      return valid ? String.fromCodePoint(code) : "\ufffd";
    },
  );
}

/**
 * Leaves one blank line between paragraphs and no blanks at line ends. Works line by line: a regular expression over runs
 * of blanks would take quadratic time on a page made of blanks.
 */
function tidyText(text: string): string {
  const lines: string[] = [];
  for (const line of text.split("\n")) {
    const trimmed = line.trim().replace(/ {2,}/g, " ");
    if (trimmed !== "" || lines.at(-1) !== "") lines.push(trimmed);
  }
  return lines.join("\n").trim();
}
