import { isUtf8 } from "node:buffer";

export const MAX_REDIRECTS = 5;

export const isRedirect = (status: number) => [301, 302, 303, 307, 308].includes(status);

/**
 * Returns the text of the next URL to judge; null without one. A target on the same origin is taken as the parser reads it
 * (servers put blanks and raw octets into paths); one on another origin is judged as the server wrote it.
 */
export function redirectTarget(location: string | string[] | undefined, from: URL): string | null {
  if (typeof location !== "string") return null;
  const written = asWritten(location);
  if (!URL.canParse(written, from.href)) return null;
  const target = new URL(written, from.href);
  const sameOrigin = target.origin === from.origin && target.username === "" && target.password === "";
  if (sameOrigin) return target.href;
  return written.startsWith("//") ? from.protocol + written : written;
}

/** Decodes a target. Headers are read as Latin-1, but servers write other letters as UTF-8, and browsers read them so. */
function asWritten(location: string): string {
  const octets = Buffer.from(location, "latin1");
  return isUtf8(octets) ? octets.toString("utf8") : location;
}
