export const MAX_REDIRECTS = 5;

export const isRedirect = (status: number) => [301, 302, 303, 307, 308].includes(status);

/**
 * The text of the next URL to judge; null without one. A target on the same origin is taken as the parser reads it
 * (servers put blanks and raw octets into paths); one on another origin is judged as the server wrote it.
 */
export function redirectTarget(location: string | string[] | undefined, from: URL): string | null {
  if (typeof location !== "string" || !URL.canParse(location, from.href)) return null;
  const target = new URL(location, from.href);
  const sameOrigin = target.origin === from.origin && target.username === "" && target.password === "";
  if (sameOrigin) return target.href;
  return location.startsWith("//") ? from.protocol + location : location;
}
