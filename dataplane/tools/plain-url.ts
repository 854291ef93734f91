/**
 * Returns one spelling of a URL, for comparisons: no fragment, and escapes undone that neither servers nor pages mean
 * anything by. Those are the ones of RFC 3986 §6.2.2, and those of marks that `encodeURIComponent` and writers of Markdown
 * treat in two ways: `x_(y)` is also written as `x_%28y%29`, so that no reader takes the bracket for the link's end.
 */
import { plainPath } from "./plain-path.ts";

export function plainUrl({ href }: URL): string {
  const [whole = href] = href.split("#", 1);
  // Most addresses hold nothing escaped.
  return whole.includes("%") ? plainPath(whole).replace(MARKS, decodeURIComponent) : whole;
}

const MARKS = /%(?:2[1789A]|5[BD])/g;
