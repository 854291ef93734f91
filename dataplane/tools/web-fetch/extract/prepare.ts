/** Prepares a page's DOM for conversion to markdown: removes noise, makes links absolute, simplifies tables and code. */

/** Elements that are never content. */
const NOISE =
  "script, style, noscript, template, svg, canvas, iframe, object, embed, video, audio, link, meta, dialog, [hidden], " +
  "[aria-hidden=true], [role=dialog], input, select, textarea, button, label, .mw-editsection";
/** Elements around the content. */
const BOILERPLATE =
  "nav, footer, aside, body > header, [role=navigation], [role=banner], [role=contentinfo], [role=search], " +
  "[role=complementary], [role=menu], [role=menubar], .sidebar, #sidebar, .breadcrumb, .breadcrumbs, .pagination, .share-buttons";
/** Longest style that is kept: Readability reads `display` of each element, and parsing a long style takes seconds. */
const MAX_STYLE = 500;
/** Marks what was an h1: Readability turns it into an h2. */
export const TOP_HEADING = "data-top-heading";

export function prepare(document: Document): void {
  const { body } = document;
  remove(body, NOISE);
  const whole = body.cloneNode(true);
  remove(body, BOILERPLATE);
  // A page that is nothing but navigation is read as it is.
  if (body.textContent.trim() === "") body.replaceWith(whole);
  for (const element of document.body.querySelectorAll("[style]")) {
    if ((element.getAttribute("style") ?? "").length > MAX_STYLE) element.removeAttribute("style");
  }
  for (const heading of document.body.querySelectorAll("h1")) heading.setAttribute(TOP_HEADING, "");
  for (const image of document.body.querySelectorAll("img")) absoluteImage(image);
  for (const link of document.body.querySelectorAll("a")) absoluteLink(link);
  simplifyCode(document);
  // Inner tables come after outer ones in document order.
  for (const table of [...document.body.querySelectorAll("table")].reverse()) simplifyTable(table, document);
}

function remove(root: Element, selector: string): void {
  for (const element of root.querySelectorAll(selector)) element.remove();
}

/** Makes a link absolute, so that it can be opened next; one that is no web address becomes plain text. */
function absoluteLink(link: HTMLAnchorElement): void {
  const href = link.getAttribute("href") ?? "";
  const text = link.textContent.trim();
  const empty = text === "" && link.querySelector("img") === null;
  // Marks of headings and footnotes, which only link within the page.
  if (empty || (href.startsWith("#") && /^[#¶§🔗^↑↩[\]\d\s]*$/u.test(text))) link.remove();
  else if (href !== "" && URL.canParse(link.href) && /^(https?:|mailto:)/.test(link.href)) {
    link.setAttribute("href", link.href);
  } else link.removeAttribute("href");
}

/** Keeps images with a description as links; inlined ones would only cost tokens. */
function absoluteImage(image: HTMLImageElement): void {
  if (/^https?:/.test(image.src) && URL.canParse(image.src) && image.alt.trim() !== "") {
    image.setAttribute("src", image.src);
  } else image.remove();
}

/** Turns all elements for code into `code`, and makes each `pre` hold exactly one. */
function simplifyCode(document: Document): void {
  for (const element of document.body.querySelectorAll("kbd, samp, tt")) {
    const code = document.createElement("code");
    code.textContent = element.textContent;
    element.replaceWith(code);
  }
  for (const pre of document.body.querySelectorAll("pre")) {
    if (pre.children.length === 1 && pre.firstChild?.nodeName === "CODE") continue;
    const code = document.createElement("code");
    code.textContent = pre.textContent;
    pre.replaceChildren(code);
  }
}

/** Longest cell of a data table without headers, in characters. */
const MAX_CELL = 400;

/** Turns a table that only lays out the page into plain blocks, and one with data into rows of single-line cells. */
function simplifyTable(table: HTMLTableElement, document: Document): void {
  const rows = [...table.rows];
  const columns = Math.max(0, ...rows.map(({ cells }) => cells.length));
  const cells = rows.flatMap((row) => [...row.cells]);
  const layout =
    columns < 2 ||
    table.getAttribute("role") === "presentation" ||
    table.querySelector("table, h1, h2, h3, h4, pre, [data-was-table]") !== null ||
    (table.querySelector("th") === null &&
      (table.querySelector("p, ul, ol") !== null ||
        cells.some(({ textContent }) => textContent.length > MAX_CELL)));
  if (!layout) {
    for (const cell of cells) simplifyCell(cell, document);
    return;
  }
  const blocks = cells.map((cell) => {
    const block = document.createElement("div");
    block.append(...cell.childNodes);
    return block;
  });
  const whole = document.createElement("div");
  whole.setAttribute("data-was-table", "");
  whole.append(...(table.caption?.childNodes ?? []), ...blocks);
  table.replaceWith(whole);
}

/** Turns a cell into what markdown can hold: one line, one column wide. */
function simplifyCell(cell: HTMLTableCellElement, document: Document): void {
  for (const block of cell.querySelectorAll("br, p, div, li")) block.before(document.createTextNode(" "));
  for (const item of cell.querySelectorAll("li")) item.prepend(document.createTextNode("• "));
  for (const block of cell.querySelectorAll("br")) block.remove();
  for (const block of [...cell.querySelectorAll("p, div, li, ul, ol")].reverse())
    block.replaceWith(...block.childNodes);
  const spanned = Math.min(cell.colSpan, 20) - 1;
  cell.removeAttribute("colspan");
  cell.removeAttribute("rowspan");
  for (let column = 0; column < spanned; column += 1) cell.after(document.createElement(cell.nodeName));
}
