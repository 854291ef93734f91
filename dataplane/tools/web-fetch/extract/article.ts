/**
 * Readability with two of its inner functions made cheap: for each list, table and div it reads the texts of all elements
 * inside, at every level again, so that four kilobytes of nested lists took fifteen seconds. Its result is the same.
 */
import { Readability } from "@mozilla/readability";

export class ArticleFinder extends Readability<HTMLElement> {
  constructor(document: Document) {
    super(document, { keepClasses: true, serializer: (node) => node as HTMLElement });
  }

  /** Replaces selectors with many names, whose matches jsdom sorts by comparing each with each. */
  _getAllNodesWithTag(node: Document | Element, tagNames: readonly string[]): Element[] {
    const [only] = tagNames;
    if (only !== undefined && tagNames.length === 1) return [...node.getElementsByTagName(only)];
    const wanted = new Set(tagNames.map((name) => name.toUpperCase()));
    return [...node.getElementsByTagName("*")].filter(({ tagName }) => wanted.has(tagName));
  }

  /** Returns the share of an element's text that is in elements of these names below it; nested ones count each time. */
  _getTextDensity(element: Element, tagNames: readonly string[]): number {
    const wanted = new Set(tagNames.map((name) => name.toUpperCase()));
    let inWanted = 0;
    // A walk without recursion, from the leaves up: each element's length is known before its parent's.
    const open: { readonly element: Node; next: Node | null; length: TextLength }[] = [
      { element, next: element.firstChild, length: NOTHING },
    ];
    for (;;) {
      const top = open.at(-1);
      if (top === undefined) return 0;
      const { next: child } = top;
      if (child === null) {
        open.pop();
        const parent = open.at(-1);
        if (parent === undefined) return top.length.inner === 0 ? 0 : inWanted / top.length.inner;
        if (wanted.has((top.element as Element).tagName)) inWanted += top.length.inner;
        parent.length = joined(parent.length, top.length);
        continue;
      }
      top.next = child.nextSibling;
      if (child.nodeType === child.ELEMENT_NODE)
        open.push({ element: child, next: child.firstChild, length: NOTHING });
      else if (child.nodeType === child.TEXT_NODE)
        top.length = joined(top.length, lengthOf(child.nodeValue ?? ""));
    }
  }
}

/** The length of a text without the blanks around it and with one blank for each run of them inside. */
interface TextLength {
  readonly before: boolean;
  readonly inner: number;
  readonly after: boolean;
}

const NOTHING: TextLength = { before: false, inner: 0, after: false };

function lengthOf(text: string): TextLength {
  const trimmed = text.trim();
  if (trimmed === "") return { ...NOTHING, before: text !== "" };
  const inner = trimmed.replace(/\s{2,}/g, " ").length;
  return { before: text.trimStart() !== text, inner, after: text.trimEnd() !== text };
}

function joined(one: TextLength, other: TextLength): TextLength {
  if (one.inner === 0) return { ...other, before: one.before || other.before };
  if (other.inner === 0) return { ...one, after: one.after || other.before };
  const gap = one.after || other.before ? 1 : 0;
  return { before: one.before, inner: one.inner + gap + other.inner, after: other.after };
}
