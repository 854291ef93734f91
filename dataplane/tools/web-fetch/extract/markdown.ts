/**
 * Readable markdown out of an HTML page that fits a DOM: Readability finds the article, turndown writes it down.
 * Runs only inside an extraction child: a hostile page may take all the time and memory there is (pool.ts).
 */
import { gfm } from "@joplin/turndown-plugin-gfm";
import { Readability } from "@mozilla/readability";
import { JSDOM, VirtualConsole } from "jsdom";
import TurndownService from "turndown";

/** Never content, whatever the page. */
const NOISE =
  "script, style, noscript, template, svg, canvas, iframe, object, embed, link, meta, dialog, [hidden], [aria-hidden=true], input, select, textarea, button";
/** Around the content. */
const BOILERPLATE =
  "nav, footer, aside, body > header, [role=navigation], [role=banner], [role=contentinfo], [role=search], [role=complementary], [role=menu], [role=menubar]";
const MAX_STYLE = 500;
/** Marks what was an h1. */
const TOP_HEADING = "data-top-heading";
/** Prose in Readability's article, of the page's prose, below which it took a part for the whole. */
const ARTICLE_SHARE = 0.75;
/** The same for the page's own `main` element. */
const MAIN_SHARE = 0.5;

const turndown = new TurndownService({
  headingStyle: "atx",
  hr: "---",
  bulletListMarker: "-",
  codeBlockStyle: "fenced",
  emDelimiter: "_",
});
turndown.use(gfm);
// Turndown pads list marks to four columns; models pay for each blank.
turndown.addRule("listItem", {
  filter: "li",
  replacement(content, node) {
    const list = node.parentNode as HTMLElement | null;
    const index = list === null ? 0 : Array.prototype.indexOf.call(list.children, node);
    const first = Number(list?.getAttribute("start") ?? 1);
    const mark = list?.nodeName === "OL" ? `${(Number.isInteger(first) ? first : 1) + index}. ` : "- ";
    const paragraphs = node.querySelector(":scope > p") !== null;
    const body = paragraphs ? content.trim() : content.trim().replace(/\n\s*\n(?=\s*(?:- |\d+\. ))/g, "\n");
    const indented = body.replace(/\n(?!\n|$)/g, `\n${" ".repeat(mark.length)}`);
    return `${mark}${indented}${node.nextSibling === null ? "" : "\n"}`;
  },
});

// Readability turns each h1 into an h2.
turndown.addRule("topHeading", {
  filter: (node) => /^H[12]$/.test(node.nodeName) && (node as Element).hasAttribute(TOP_HEADING),
  replacement: (content) => `\n\n# ${content}\n\n`,
});

export function htmlToMarkdown(html: string, url: string): { title: string | null; text: string } {
  const document = parse(html, url);
  const title = titleOf(document);
  const whole = contentOf(document.body.cloneNode(true) as HTMLElement);
  // Readability takes the document apart, so it goes last.
  const article = new Readability(document, {
    keepClasses: true,
    serializer: (node) => node as HTMLElement,
  }).parse();
  const content = article?.content ?? null;
  const best = content !== null && keeps(content, whole) ? content : whole;
  return { title: title ?? nonEmpty(article?.title), text: turndown.turndown(best) };
}

/** The body without what stands around its content; its `main` element when that is most of it. */
function contentOf(body: HTMLElement): HTMLElement {
  for (const element of body.querySelectorAll(BOILERPLATE)) element.remove();
  const main = body.querySelector<HTMLElement>("main, [role=main]");
  return main !== null && prose(main) >= prose(body) * MAIN_SHARE ? main : body;
}

/** True when the article leaves out neither most of the prose nor code, tables or headings. */
function keeps(article: HTMLElement, whole: HTMLElement): boolean {
  const counts = (element: Element) =>
    ["pre", "table", "h2, h3"].map((selector) => element.querySelectorAll(selector).length);
  const kept = counts(article);
  return (
    prose(article) >= prose(whole) * ARTICLE_SHARE &&
    counts(whole).every((count, index) => (kept[index] ?? 0) >= count)
  );
}

/** Characters outside links: menus and link lists weigh nothing. */
function prose(element: Element): number {
  const length = (text: string) => text.replace(/\s+/g, " ").length;
  let linked = 0;
  for (const link of element.querySelectorAll("a[href]")) linked += length(link.textContent);
  return length(element.textContent) - linked;
}

function parse(html: string, url: string): Document {
  // A console without listeners: whatever the page provokes is silent. Scripts and subresources stay off.
  const { document } = new JSDOM(html, { url, virtualConsole: new VirtualConsole() }).window;
  for (const element of document.querySelectorAll(NOISE)) element.remove();
  for (const element of document.querySelectorAll("[style]")) {
    // Readability looks at `display`; parsing a long style for it takes seconds.
    if ((element.getAttribute("style") ?? "").length > MAX_STYLE) element.removeAttribute("style");
  }
  for (const link of document.querySelectorAll("a")) absoluteLink(link);
  for (const heading of document.querySelectorAll("h1")) heading.setAttribute(TOP_HEADING, "");
  for (const image of document.querySelectorAll("img")) absoluteImage(image);
  return document;
}

/** Links become absolute, so that they can be opened next; what is no web address becomes plain text. */
function absoluteLink(link: HTMLAnchorElement): void {
  const href = link.getAttribute("href") ?? "";
  // Marks beside headings that link to themselves.
  if (href.startsWith("#") && /^[#¶§🔗\s]*$/u.test(link.textContent)) link.remove();
  else if (/^(https?:|mailto:)/.test(link.href)) link.setAttribute("href", link.href);
  else link.removeAttribute("href");
}

/** Images stay as links with their description; inlined ones would only cost tokens. */
function absoluteImage(image: HTMLImageElement): void {
  if (/^https?:/.test(image.src) && image.alt.trim() !== "") image.setAttribute("src", image.src);
  else image.remove();
}

function nonEmpty(text: string | null | undefined): string | null {
  const trimmed = text?.replace(/\s+/g, " ").trim() ?? "";
  return trimmed === "" ? null : trimmed;
}

function titleOf(document: Document): string | null {
  return (
    nonEmpty(document.title) ??
    nonEmpty(document.querySelector("meta[property='og:title']")?.getAttribute("content")) ??
    nonEmpty(document.querySelector("h1")?.textContent)
  );
}
