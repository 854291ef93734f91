/**
 * Returns one spelling of a path with its query, for comparisons: octets beyond ASCII escaped, escapes of unreserved
 * characters undone (RFC 3986 §6.2.2, RFC 9309 §2.2.2). Servers treat `%62log` and `blog` alike, so must a list of paths.
 */
export function plainPath(path: string): string {
  const escaped = path.replace(/[^\u0021-\u007e]+/gu, (text) => encodeURIComponent(text.toWellFormed()));
  return escaped.replace(/%([0-9a-fA-F]{2})/g, (whole, hex: string) => {
    const character = String.fromCharCode(Number.parseInt(hex, 16));
    return /[A-Za-z0-9._~-]/.test(character) ? character : whole.toUpperCase();
  });
}
