/** The addresses of links in a page's text. Pure. */

/** Escapes brackets in an address unless they balance, which Markdown allows. */
export const linkTarget = (url: string): string =>
  escapedUnlessBalanced(escapedUnlessBalanced(url, "()"), "[]");

function escapedUnlessBalanced(url: string, pair: "()" | "[]"): string {
  // Most addresses have none, and a page may have thousands of long ones.
  if (!url.includes(pair.charAt(0)) && !url.includes(pair.charAt(1))) return url;
  let open = 0;
  for (const character of url) {
    if (character === pair[0]) open += 1;
    else if (character === pair[1] && (open -= 1) < 0) break;
  }
  if (open === 0) return url;
  const escaped = (character: string) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
  return Array.from(pair).reduce((rest, character) => rest.replaceAll(character, escaped(character)), url);
}
