/**
 * Converts an HTML page that fits a DOM into readable markdown: Readability finds the article, turndown converts it.
 * Runs only inside an extraction child: a hostile page may take all the time and memory there is (pool.ts).
 */
import { gfm } from "@joplin/turndown-plugin-gfm";
import { JSDOM, VirtualConsole } from "jsdom";
import TurndownService from "turndown";
import { ArticleFinder } from "./article.ts";
import { linkTarget } from "./link-target.ts";
import { prepare, TOP_HEADING } from "./prepare.ts";

/** Share of the page's prose below which Readability's article is only a part of the content. */
const ARTICLE_SHARE = 0.75;
/** The same share for the page's own `main` element. */
const MAIN_SHARE = 0.5;

export function htmlToMarkdown(html: string, url: string): { title: string | null; text: string } {
  // A console without listeners: errors that the page provokes are not printed. Scripts and subresources stay off.
  const { document } = new JSDOM(html, { url, virtualConsole: new VirtualConsole() }).window;
  const title = titleOf(document);
  prepare(document);
  const heading = oneLine(document.querySelector("h1")?.textContent);
  const whole = contentOf(document.body.cloneNode(true) as HTMLElement);
  // Readability takes the document apart, so it runs last.
  const article = new ArticleFinder(document).parse();
  const content = article?.content ?? null;
  if (content === null || !keeps(content, whole)) return { title, text: turndown.turndown(whole) };
  // Readability leaves out the heading and the by-line, which say what the page is and how old.
  const above = [
    content.querySelector(`[${TOP_HEADING}]`) === null && heading !== null ? `# ${heading}` : null,
    oneLine([article?.byline, article?.publishedTime].filter(Boolean).join(", ")),
  ];
  const text = [...above, turndown.turndown(content)]
    .filter((part) => part !== null && part !== "")
    .join("\n\n");
  return { title, text };
}

/** Returns the body's `main` element if it has most of the prose, else the body. */
function contentOf(body: HTMLElement): HTMLElement {
  const main = body.querySelector<HTMLElement>("main, [role=main]");
  return main !== null && prose(main) >= prose(body) * MAIN_SHARE ? main : body;
}

/** Whether the article keeps most of the prose and all code, tables and headings. */
function keeps(article: HTMLElement, whole: HTMLElement): boolean {
  const counts = (element: Element) =>
    ["pre", "table", "h2, h3"].map((selector) => element.querySelectorAll(selector).length);
  const kept = counts(article);
  return (
    prose(article) >= prose(whole) * ARTICLE_SHARE &&
    counts(whole).every((count, index) => (kept[index] ?? 0) >= count)
  );
}

/** Counts characters outside links: menus and link lists count nothing. */
function prose(element: Element): number {
  const length = (text: string) => text.replace(/\s+/g, " ").length;
  let linked = 0;
  for (const link of element.querySelectorAll("a[href]")) linked += length(link.textContent);
  return length(element.textContent) - linked;
}

function oneLine(text: string | null | undefined): string | null {
  const trimmed = text?.replace(/\s+/g, " ").trim() ?? "";
  return trimmed === "" ? null : trimmed;
}

function titleOf(document: Document): string | null {
  return (
    oneLine(document.title) ??
    oneLine(document.querySelector("meta[property='og:title']")?.getAttribute("content")) ??
    oneLine(document.querySelector("h1")?.textContent)
  );
}

const turndown = new TurndownService({
  headingStyle: "atx",
  hr: "---",
  bulletListMarker: "-",
  codeBlockStyle: "fenced",
  emDelimiter: "_",
});
turndown.use(gfm);
turndown.addRule("topHeading", {
  filter: (node) => /^H[12]$/.test(node.nodeName) && (node as Element).hasAttribute(TOP_HEADING),
  replacement: (content) => `\n\n# ${content}\n\n`,
});
// Without escapes in the address, so that the text holds the URL itself; without titles, which repeat it.
turndown.addRule("webLink", {
  filter: (node) => node.nodeName === "A" && node.hasAttribute("href"),
  replacement(content, node) {
    const text = content
      .replace(/^[^\S\r\n\u2028\u2029]*#+ /gm, "")
      .replace(/\s+/g, (blanks) => (blanks.includes("\n") ? " " : blanks))
      .trim();
    return text === "" ? "" : `[${text}](${linkTarget((node as Element).getAttribute("href") ?? "")})`;
  },
});
turndown.addRule("webImage", {
  filter: "img",
  replacement(_, node) {
    const image = node as HTMLImageElement;
    const alt = image.alt.replace(/\s+/g, " ").replace(/[[\]]/g, "").trim();
    return `![${alt}](${linkTarget(image.getAttribute("src") ?? "")})`;
  },
});
turndown.addRule("superscript", { filter: "sup", replacement: (content) => raised("^", content) });
turndown.addRule("subscript", { filter: "sub", replacement: (content) => raised("_", content) });
turndown.addRule("quotation", { filter: "q", replacement: (content) => `“${content}”` });
// Turndown pads list marks to four columns; each blank costs tokens.
turndown.addRule("listItem", {
  filter: "li",
  replacement(content, node) {
    const list = node.parentNode as HTMLElement | null;
    const index = list === null ? 0 : Array.prototype.indexOf.call(list.children, node);
    const first = Number(list?.getAttribute("start") ?? 1);
    const mark = list?.nodeName === "OL" ? `${(Number.isInteger(first) ? first : 1) + index}. ` : "- ";
    const paragraphs = node.querySelector(":scope > p") !== null;
    const body = paragraphs ? content.trim() : withoutGaps(content.trim());
    const indented = body.replace(/\n(?!\n|$)/g, `\n${" ".repeat(mark.length)}`);
    return `${mark}${indented}${node.nextSibling === null ? "" : "\n"}`;
  },
});

/**
 * Takes blank lines before the items of inner lists away. Every blank is looked at once: a pattern that also says what stands
 * behind the blanks begins anew at each of them, and three kilobytes of blank lines took five seconds.
 */
const withoutGaps = (content: string): string =>
  content.replace(/\n\s+/g, (blanks: string, at: number) => {
    const last = blanks.lastIndexOf("\n");
    listMark.lastIndex = at + blanks.length;
    return last > 0 && listMark.test(content) ? blanks.slice(last) : blanks;
  });

/** What an item begins with. */
const listMark = /- |\d+\. /y;

const raised = (mark: string, content: string) => (content.trim() === "" ? "" : `${mark}${content}`);
