/**
 * robots.txt by RFC 9309: the groups that name us replace the group of `*`, the longest matching rule wins and
 * `allow` wins a tie, `*` and a final `$` are special. Not a package: the parser on npm copies each rule into each agent
 * of a group (a small file can take all memory) and lets an unrelated line end a group. Pure, but for its pauses.
 */
import { Slices } from "../../lib/slices.ts";
import { plainPath } from "../plain-path.ts";
import { MAX_URL_LENGTH } from "../url-guard/judge-url.ts";

export const USER_AGENT = "SvcFetch/1.0";
/** Our name in robots.txt files. */
export const AGENT_TOKEN = "svcfetch";

/** Bytes that are parsed; RFC 9309 §2.5 asks for at least 500 KiB. */
export const MAX_ROBOTS_BYTES = 500 * 1024;

const SLICE_MS = 5;
/** Longest rule: the longest URL with nine characters for each of its own, as one beyond ASCII takes three escaped octets. */
const MAX_RULE_LENGTH = 9 * MAX_URL_LENGTH;
/** Characters of the path that rules with a `*` may search, all together: some hundred milliseconds. */
const MAX_SEARCHED = 32 * 1024 * 1024;

interface Rule {
  readonly allow: boolean;
  /** Literal pieces between the `*`, in one spelling. */
  readonly pieces: readonly string[];
  /** Whether the pattern ended in `$`. */
  readonly anchored: boolean;
  readonly length: number;
}

export type Robots = readonly Rule[];

export const allowAll: Robots = [];

/** Returns the rules for `agent`, a bare product token in lower case such as `svcfetch`; a large file is read in slices. */
export async function parseRobots(text: string, agent: string): Promise<Robots> {
  const slices = new Slices(SLICE_MS);
  const own: Rule[] = [];
  const everybody: Rule[] = [];
  let named = false;
  /** The agents of the present group, and whether its rules have begun. */
  let group = { own: false, everybody: false, begun: true };
  for (const line of text.replace(/^\ufeff/, "").split(/[\r\n]+/)) {
    if (slices.usedUp) await slices.pause();
    const { key, value } = field(line);
    if (key === "user-agent") {
      if (group.begun) group = { own: false, everybody: false, begun: false };
      if (value === "*") group.everybody = true;
      else if (productToken(value) === agent) group.own = named = true;
    } else if (key === "allow" || key === "disallow") {
      group.begun = true;
      const rule = parseRule(key === "allow", value);
      if (rule === null) continue;
      if (group.own) own.push(rule);
      if (group.everybody) everybody.push(rule);
    }
  }
  return named ? own : everybody;
}

/**
 * Whether the path (with query) may be fetched; `/robots.txt` itself always may. Many rules are matched in slices; a file that
 * takes more than `MAX_SEARCHED` to match, which no honest one does, denies.
 */
export async function robotsAllow(robots: Robots, url: URL): Promise<boolean> {
  if (url.pathname === "/robots.txt") return true;
  const slices = new Slices(SLICE_MS);
  const path = plainPath(url.pathname + url.search);
  let searched = 0;
  let best: Rule | null = null;
  for (const rule of robots) {
    if (slices.usedUp) await slices.pause();
    if (best !== null && (rule.length < best.length || (rule.length === best.length && !rule.allow)))
      continue;
    const [first = "", ...rest] = rule.pieces;
    if (!path.startsWith(first)) continue;
    if (rest.length > 0) searched += path.length;
    if (searched > MAX_SEARCHED) return false;
    if (matches(path, first.length, rest, rule.anchored)) best = rule;
  }
  return best?.allow ?? true;
}

function field(line: string): { key: string; value: string } {
  const comment = line.indexOf("#");
  const plain = comment < 0 ? line : line.slice(0, comment);
  const colon = plain.indexOf(":");
  if (colon < 0) return { key: "", value: "" };
  return { key: plain.slice(0, colon).trim().toLowerCase(), value: plain.slice(colon + 1).trim() };
}

/** `SvcFetch/1.0` and `svcfetch` name the same crawler. */
const productToken = (value: string) => /^[a-z_-]*/.exec(value.toLowerCase())?.[0] ?? "";

/** Returns a rule; null: it is empty (an empty `disallow` allows everything, as no rule does) or longer than any URL. */
function parseRule(allow: boolean, value: string): Rule | null {
  if (value === "" || value.length > MAX_RULE_LENGTH) return null;
  const anchored = value.endsWith("$");
  const pattern = plainPath(anchored ? value.slice(0, -1) : value);
  return { allow, pieces: pattern.split(/\*+/), anchored, length: pattern.length };
}

/** Whether the pieces follow in order. Leftmost matches suffice, except for the last piece under `$`: linear in the path. */
function matches(path: string, from: number, pieces: string[], anchored: boolean): boolean {
  let at = from;
  const last = anchored ? pieces.pop() : undefined;
  for (const piece of pieces) {
    const found = path.indexOf(piece, at);
    if (found < 0) return false;
    at = found + piece.length;
  }
  if (!anchored) return true;
  if (last === undefined) return at === path.length;
  return path.length - last.length >= at && path.endsWith(last);
}
