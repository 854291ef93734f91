/**
 * Judges an address that a model, a page or a redirect asks the gateway to open, before anything is resolved.
 * Two programs that read one URL differently are how such guards are passed, so a URL that is not written plainly
 * is refused: what stands in the text must be what the parser understood.
 */
import { isIPv4, isIPv6 } from "node:net";
import { judgeAddress, type EgressRules } from "./address.ts";

export type UrlVerdict =
  | {
      readonly allowed: true;
      readonly url: URL;
      /** The name or the address literal, without brackets. */
      readonly host: string;
      readonly port: number;
      readonly literal: boolean;
    }
  | { readonly allowed: false; readonly malformed: boolean; readonly reason: string };

/** Longest URL that is looked at; redirects may be longer than what a model may ask for. */
export const MAX_URL_LENGTH = 4096;
const MAX_NAME_LENGTH = 253;

const refuse = (reason: string, malformed = false): UrlVerdict => ({ allowed: false, malformed, reason });

/** Judges scheme, userinfo, host form, port and address literals. */
export function judgeUrl(text: string, rules: EgressRules): UrlVerdict {
  if (text.length > MAX_URL_LENGTH) return refuse("URL too long");
  if (!text.isWellFormed() || !URL.canParse(text)) return refuse("not a URL", true);
  const url = new URL(text);
  if (url.protocol !== "http:" && url.protocol !== "https:") return refuse("neither http nor https");
  // The parser drops tabs and line breaks, trims blanks and reads "\" as "/": others do not.
  // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
  if (/[\u0000-\u0020\u007f\\]/.test(text)) return refuse("blank, control character or backslash in the URL");
  const written = /^https?:\/\/([^/?#]+)/i.exec(text)?.[1];
  if (written === undefined || /[\s\p{Cf}]/u.test(written)) return refuse("no plain authority");
  if (written.includes("@") || url.username !== "" || url.password !== "") return refuse("user information");
  const parts = /^(\[[^\]]*\]|[^:]*)(?::([1-9]\d{0,4}))?$/.exec(written);
  if (parts === null) return refuse("unclear host or port");
  const port = url.port === "" ? (url.protocol === "https:" ? 443 : 80) : Number(url.port);
  if (parts[2] !== undefined && Number(parts[2]) !== port) return refuse("unclear port");
  // Else it depends on the address.
  if (!rules.ports.has(port) && !rules.anyPortInside) return refuse("port not allowed");
  const host = plainHost(parts[1] ?? "", url.hostname);
  if (host === null) return refuse("host not written plainly");
  const literal = isIPv4(host) || isIPv6(host);
  if (literal) {
    const verdict = judgeAddress(host, rules);
    if (!verdict.allowed) return refuse(verdict.reason);
  }
  return { allowed: true, url, host, port, literal };
}

/** The host without brackets, or null when text and parser disagree, or when it is no possible host. */
function plainHost(written: string, parsed: string): string | null {
  if (written.startsWith("[")) {
    const literal = written.slice(1, -1);
    return isIPv6(literal) && !literal.includes("%") ? parsed.slice(1, -1) : null;
  }
  // Decimal, octal, hexadecimal and short forms all become dotted: only dotted decimal was plain.
  if (isIPv4(parsed)) return written === parsed ? parsed : null;
  const writtenLabels = written.split(".");
  const parsedLabels = parsed.split(".");
  if (writtenLabels.length !== parsedLabels.length) return null;
  const agree = writtenLabels.every((label, index) => sameLabel(label, parsedLabels[index] ?? ""));
  return agree && isHostName(parsed) ? parsed : null;
}

/** An ASCII label stands for itself; any other one must have become an IDN label (full-width ASCII does not). */
function sameLabel(written: string, parsed: string): boolean {
  // oxlint-disable-next-line no-control-regex -- the ASCII range
  if (/^[\u0000-\u007f]*$/.test(written)) return written.toLowerCase() === parsed;
  return parsed.startsWith("xn--");
}

/** A DNS name as far as its form goes; one trailing dot is allowed. */
export function isHostName(name: string): boolean {
  const bare = name.endsWith(".") ? name.slice(0, -1) : name;
  return bare.length <= MAX_NAME_LENGTH && bare.split(".").every((label) => /^[a-z0-9_-]{1,63}$/.test(label));
}

/** Names that a proxy must not be asked to resolve: they mean the proxy's own machine, network or cloud. */
export function isInternalName(host: string): boolean {
  const labels = host.replace(/\.$/, "").split(".");
  const top = labels.at(-1) ?? "";
  if (labels.length === 1) return true;
  if (["localhost", "local", "internal", "intranet", "lan", "svc", "onion", "test", "invalid"].includes(top))
    return true;
  const tail = labels.slice(-2).join(".");
  return tail === "home.arpa" || tail === "cluster.local" || tail === "localdomain";
}
