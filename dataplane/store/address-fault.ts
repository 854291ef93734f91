/** Checks addresses that hold a user and a password, which may be of any characters. */

export const BARE_PERCENT = "holds a % that begins no escape; write it as %25";

/** Returns why an address cannot be read, in words that hold nothing of it; null: it can. */
export function addressFault(address: string): string | null {
  const url = URL.parse(address);
  if (url === null)
    return "cannot be read as an address; in user and password / ? # @ : are written as %2F %3F %23 %40 %3A";
  try {
    // Each part by itself, as the parts are read.
    for (const part of [url.username, url.password, url.pathname]) decodeURIComponent(part);
    return null;
  } catch {
    return BARE_PERCENT;
  }
}
