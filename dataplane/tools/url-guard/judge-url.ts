/**
 * Judges a URL that a model, a page or a redirect asks the gateway to open, before anything is resolved. Such guards are
 * bypassed by URLs that two programs read differently, so a URL that is not written plainly is refused: the text must say
 * what the parser understood.
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

/** Longest URL that is judged; redirects may be longer than URLs that a model asks for. */
export const MAX_URL_LENGTH = 4096;
const MAX_NAME_LENGTH = 253;

const refuse = (reason: string, malformed = false): UrlVerdict => ({ allowed: false, malformed, reason });

/** Judges scheme, userinfo, host form, port and address literals. */
export function judgeUrl(text: string, rules: EgressRules): UrlVerdict {
  if (text.length > MAX_URL_LENGTH) return refuse("URL too long");
  if (!text.isWellFormed() || !URL.canParse(text)) return refuse("not a URL", true);
  const url = new URL(text);
  if (url.protocol !== "http:" && url.protocol !== "https:") return refuse("neither http nor https");
  // The parser drops tabs and line breaks, trims blanks and reads "\" as "/": other parsers do not.
  // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
  if (/[\u0000-\u0020\u007f\\]/.test(text)) return refuse("blank, control character or backslash in the URL");
  const written = /^https?:\/\/([^/?#]+)/i.exec(text)?.[1];
  if (written === undefined || /[\s\p{Cf}]/u.test(written)) return refuse("no plain authority");
  if (written.includes("@") || url.username !== "" || url.password !== "") return refuse("user information");
  const parts = /^(\[[^\]]*\]|[^:]*)(?::([1-9]\d{0,4}))?$/.exec(written);
  if (parts === null) return refuse("unclear host or port");
  const port = url.port === "" ? (url.protocol === "https:" ? 443 : 80) : Number(url.port);
  if (parts[2] !== undefined && Number(parts[2]) !== port) return refuse("unclear port");
  // With `anyPortInside` it depends on the address.
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

/** Returns the host without brackets, or null when text and parser disagree, or when it is no possible host. */
function plainHost(written: string, parsed: string): string | null {
  if (written.startsWith("[")) {
    const literal = written.slice(1, -1);
    return isIPv6(literal) && !literal.includes("%") ? parsed.slice(1, -1) : null;
  }
  // The parser turns decimal, octal, hexadecimal and short forms into dotted decimal: only that form is plain.
  if (isIPv4(parsed)) return written === parsed ? parsed : null;
  const writtenLabels = written.split(".");
  const parsedLabels = parsed.split(".");
  if (writtenLabels.length !== parsedLabels.length) return null;
  const agree = writtenLabels.every((label, index) => sameLabel(label, parsedLabels[index] ?? ""));
  return agree && isHostName(parsed) ? parsed : null;
}

/** Whether the labels agree: ASCII stays the same but for case; others must have become IDN labels (full-width ASCII does not). */
function sameLabel(written: string, parsed: string): boolean {
  // oxlint-disable-next-line no-control-regex -- the ASCII range
  if (/^[\u0000-\u007f]*$/.test(written)) return written.toLowerCase() === parsed;
  return parsed.startsWith("xn--");
}

/** Whether a text has the form of a DNS name; one trailing dot is allowed. */
export function isHostName(name: string): boolean {
  const bare = name.endsWith(".") ? name.slice(0, -1) : name;
  return bare.length <= MAX_NAME_LENGTH && bare.split(".").every((label) => /^[a-z0-9_-]{1,63}$/.test(label));
}

/** Whether a proxy must not be asked to resolve a name, as it means the proxy's own machine, network or cloud. */
export function isInternalName(host: string): boolean {
  const labels = host.replace(/\.$/, "").split(".");
  const top = labels.at(-1) ?? "";
  if (labels.length === 1) return true;
  if (["localhost", "local", "internal", "intranet", "lan", "svc", "onion", "test", "invalid"].includes(top))
    return true;
  const tail = labels.slice(-2).join(".");
  return tail === "home.arpa" || tail === "cluster.local" || tail === "localdomain";
}
