/** What the claims of a verified token say of its holder (rules 13.1, 13.3). Pure. */
import type { IdentityRule } from "../../config/schema.ts";
import { isObject } from "../../lib/json-object.ts";
import { MOST_NAME } from "../../lib/names.ts";

export type Claims = Readonly<Record<string, unknown>>;

/**
 * Returns the claim of this name, else the one that its dots lead to. Names may have dots themselves, such as `kubernetes.io`:
 * the longest name that is there is taken at each step. undefined: there is none. Looks at each claim at most once,
 * as the owner of an issuer writes both sides. `from`: where in the name to begin.
 */
export function claimAt(claims: Claims, name: string, from = 0): unknown {
  const heads = Object.keys(claims).filter((key) => {
    const end = from + key.length;
    return (end === name.length || (key !== "" && name[end] === ".")) && name.startsWith(key, from);
  });
  for (const head of heads.toSorted((one, other) => other.length - one.length)) {
    const end = from + head.length;
    const inner = claims[head];
    const found = end === name.length ? inner : isObject(inner) ? claimAt(inner, name, end + 1) : undefined;
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Texts are compared letter by letter, without case folding or Unicode normalization; numbers and booleans as JSON writes them. */
const equals = (value: unknown, wanted: string): boolean =>
  typeof value === "string"
    ? value === wanted
    : (typeof value === "number" || typeof value === "boolean") && String(value) === wanted;

const says = (value: unknown, wanted: string): boolean =>
  Array.isArray(value) ? value.some((item) => equals(item, wanted)) : equals(value, wanted);

/** Returns the first rule whose claims all match; undefined: none does. */
export const ruleFor = (rules: readonly IdentityRule[], claims: Claims): IdentityRule | undefined =>
  rules.find((rule) =>
    Object.entries(rule.claims).every(([name, wanted]) => says(claimAt(claims, name), wanted)),
  );

/** Returns the token's audiences: as many as its sender likes. */
export const audiencesOf = ({ aud }: Claims): ReadonlySet<string> =>
  new Set([aud].flat().filter((one) => typeof one === "string"));

/** Letters, digits, signs: a name without any would stand in lists as a gap. */
const VISIBLE = /[\p{L}\p{N}\p{P}\p{S}]/u;

/** Returns what the console calls the token's holder: their name, else their mail address; null: the token has neither. */
export function nameIn(claims: Claims): string | null {
  const named = [claims["name"], claims["preferred_username"], claims["email"]].find(
    (value) => typeof value === "string" && VISIBLE.test(value),
  );
  if (typeof named !== "string") return null;
  // Postgres keeps no NUL, and no half of a character.
  const shown = named.trim().replaceAll("\0", "").slice(0, MOST_NAME);
  // A copy: the name is kept as long as the token, and must not keep the whole claim in memory.
  return Buffer.from(shown.replace(/[\ud800-\udbff]$/, "")).toString();
}
