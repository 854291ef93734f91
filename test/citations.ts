/**
 * What comments and pages cite, and where it must stand. Forms of a citation:
 *
 *   rule 4.5, rules 4.6–4.8, 5.1      docs/reference/rules.md, the paragraph that begins with `**4.5**`
 *   design.md §4.2, dialects.md §A4   docs/reference/<page>, the heading that begins so; §0.6 is item 6 under §0
 *   service.md "Errors", "Limits"     a heading of that page, in docs/reference or docs
 *   docs/operations.md, large-bodies.md   a page; in Markdown, [links](page.md#heading) to a file and its heading
 *   billing/ledger/charge.ts, store/meter-hold.lua   a file, from the root, the program's folder or the comment's own folder
 */
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join, resolve } from "node:path";

const root = resolve(import.meta.dirname, "..");
const REFERENCE = "docs/reference";
const pagesAt = [".", "docs", REFERENCE, "docs/decisions"];
/** Folders of texts that are data, or made by others. */
const foreignFolders = new Set(["node_modules", ".git", ".gapura", "golden"]);
const foreign = new Set(["test/citations.ts", "test/tidy.test.ts", "package-lock.json"]);
/** Files of others, named in prose. */
const notOurs = new Set(["SKILL.md", "expected.md"]);
const readable = /\.(ts|mjs|lua|sql|sh|md|ya?ml|tpl|txt)$/;

export interface Citation {
  readonly file: string;
  readonly text: string;
  /** Where it is looked for. */
  readonly page: string;
  readonly found: boolean;
}

const pages = new Map<string, { headings: readonly string[]; text: string }>();
function page(path: string): { headings: readonly string[]; text: string } {
  let known = pages.get(path);
  if (known === undefined) {
    const text = existsSync(join(root, path)) ? readFileSync(join(root, path), "utf8") : "";
    const headings = Array.from(text.matchAll(/^#{1,6} (.+)$/gm), ([, heading]) => heading!.trim());
    known = { headings, text };
    pages.set(path, known);
  }
  return known;
}

/** As GitHub makes the anchor of a heading. */
const anchor = (heading: string) =>
  heading
    .toLowerCase()
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, "")
    .replaceAll(" ", "-");

function hasSection(path: string, name: string): boolean {
  const starts = (wanted: string) => (heading: string) =>
    new RegExp(`^§?${wanted.replaceAll(".", "\\.")}(\\.? |\\.?$)`).test(heading);
  const { headings, text } = page(path);
  if (headings.some(starts(name))) return true;
  const [section = "", item] = name.split(".");
  const heading = headings.find(starts(section));
  if (heading === undefined || item === undefined) return false;
  const body = text.slice(text.indexOf(`# ${heading}`) + 2).split(/^#{1,6} /m)[0] ?? "";
  return new RegExp(`^${item}\\. `, "m").test(body);
}

const placeOf = (name: string) => pagesAt.find((folder) => existsSync(join(root, folder, name)));

/** Every file of the repository whose comments or prose may cite. */
export function citingFiles(folder = ""): string[] {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = folder === "" ? entry.name : `${folder}/${entry.name}`;
    // What is foreign is not walked through either: node_modules has many times as many files as all the rest.
    if (entry.isDirectory()) return foreignFolders.has(entry.name) ? [] : citingFiles(path);
    return entry.isFile() && readable.test(entry.name) && !foreign.has(path) ? [path] : [];
  });
}

const comments = /\/\*[\s\S]*?\*\/|(?:^|\s)(?:\/\/|--|#) .*$/gm;

/** Continued lines of comments as one. */
const joined = (text: string) => text.replaceAll(/\n[ \t]*(?:\*|\/\/|--|#)?[ \t]+/g, " ");

export function citationsOf(file: string): Citation[] {
  const source = readFileSync(join(root, file), "utf8");
  const text = joined(source);
  const all: Citation[] = [];
  const add = (cited: string, path: string, found: boolean) =>
    all.push({ file, text: cited, page: path, found });

  const rules = `${REFERENCE}/rules.md`;
  for (const [, list] of text.matchAll(
    /\b(?:[Rr]ules?|rules\.md) (\d+\.\d+(?:(?:,|–|-| and| or| to)? ?\d+\.\d+)*)/g,
  ))
    for (const [number] of list!.matchAll(/\d+\.\d+/g))
      add(`rule ${number}`, rules, page(rules).text.includes(`\n**${number}** `));

  for (const [, name, list] of text.matchAll(/\b([\w-]+\.md),? (§[\w.]+(?:(?:,|–| and| or) ?§[\w.]+)*)/g))
    for (const [, section] of list!.matchAll(/§([\w.]*\w)/g))
      add(`${name} §${section}`, `${REFERENCE}/${name}`, hasSection(`${REFERENCE}/${name}`, section!));

  for (const [, name, list] of text.matchAll(/\b([\w-]+\.md),? ("[^"\n]+"(?:,? (?:and )?"[^"\n]+")*)/g))
    for (const [, heading] of list!.matchAll(/"([^"]+)"/g)) {
      const path = `${placeOf(name!) === "docs" ? "docs" : REFERENCE}/${name}`;
      add(`${name} "${heading}"`, path, page(path).headings.includes(heading!));
    }

  for (const [whole, before, name] of text.matchAll(/((?:[\w.-]+\/)*)\b([\w-]+\.md)\b/g)) {
    if (notOurs.has(name!)) continue;
    const found = [whole, `docs/${whole}`, `${dirname(file)}/${whole}`].some((path) =>
      existsSync(join(root, path)),
    );
    add(
      whole,
      before === "" ? pagesAt.join(", ") : "",
      found || (before === "" && placeOf(name!) !== undefined),
    );
  }

  const prose = file.endsWith(".md")
    ? source
    : Array.from(source.matchAll(comments), ([comment]) => comment).join("\n");
  for (const [, path] of prose.matchAll(
    /(?<![\w/.@*>{$-])((?:[\w-]+\/)+[\w.-]+\.(?:ts|mjs|lua|sql|tpl|sh))(?![\w*])/g,
  )) {
    const from = [
      "",
      "dataplane/",
      "operator/",
      `${file.split("/").slice(0, 2).join("/")}/`,
      `${dirname(file)}/`,
    ];
    // The form of a name.
    if (path!.includes("NNNN")) continue;
    add(
      path!,
      "a file",
      from.some((folder) => existsSync(join(root, folder, path!))),
    );
  }

  if (file.endsWith(".md"))
    for (const [, target, heading] of source
      .replaceAll(/`[^`\n]*`/g, "")
      .matchAll(/\]\(([^)#\s:]*)(?:#([^)\s]*))?\)/g)) {
      const path = target === "" ? file : join(dirname(file), target!);
      const there = existsSync(join(root, path));
      const anchors = heading === undefined ? [] : page(path).headings.map(anchor);
      add(`${target}#${heading ?? ""}`, path, there && (heading === undefined || anchors.includes(heading)));
    }
  // A section of nothing: of which page? Standards are named before it.
  else
    for (const [cited] of text.matchAll(
      /(?<!\.md,? (?:§[\w.]+(?:,|–| and| or) ?)*)(?<!RFC \d{4} |HTML |RFC \d{4} §[\w.]+, )§[A-Z]?\d[\w.]*/g,
    ))
      add(cited, "no page is named", false);
  return all;
}

/** Numbers of rules.md, and those that it calls planned: by themselves, or with their whole section. */
export function ruleNumbers(): { readonly all: readonly string[]; readonly planned: ReadonlySet<string> } {
  const { text } = page(`${REFERENCE}/rules.md`);
  const all: string[] = [];
  const planned = new Set<string>();
  for (const section of text.split(/^## /m).slice(1)) {
    const whole = /^\d+\.[^\n]*\n\n\*\*Planned\.\*\*/.test(section);
    for (const [, number, mark] of section.matchAll(/^\*\*(\d+\.\d+)\*\* (\*\*Planned\.\*\*)?/gm)) {
      all.push(number!);
      if (whole || mark !== undefined) planned.add(number!);
    }
  }
  return { all, planned };
}
