/** What the YAML of one document may be, looked at in one pass each: no repeated keys, no bomb of aliases, no end of nesting. Pure. */
import {
  type Alias,
  type Document,
  isAlias,
  isMap,
  isPair,
  isScalar,
  isSeq,
  type Node,
  type Scalar,
  visit,
} from "yaml";

/** Anchors and aliases of one document; the library looks for the anchor of each alias among all of both. */
export const MAX_ANCHORS_AND_ALIASES = 10_000;
/** Values that they may stand for, together; more is a bomb. */
export const MAX_ALIASED_VALUES = 400_000;
/** What goes through values recurses. Without aliases the parser stops before this by itself. */
const MAX_DEPTH = 1000;

/** A key that its map has before. The library would compare each key with all before it, which takes minutes for 30,000. */
export function repeatedKey(document: Document.Parsed): Scalar | null {
  let found: Scalar | null = null;
  visit(document, {
    Map: (_, { items }) => {
      const seen = new Set<unknown>();
      for (const { key } of items) {
        if (!isScalar(key)) continue;
        if (seen.has(key.value)) {
          found = key;
          return visit.BREAK;
        }
        seen.add(key.value);
      }
      return undefined;
    },
  });
  return found;
}

/** Where a document goes beyond its anchors and aliases, or the values that its aliases stand for; null: nowhere. */
export function aliasBeyond(document: Document.Parsed): number | null {
  const weights = new Map<string, number>();
  let marks = 0;
  let aliased = 0;
  let beyond: number | null = null;
  const mark = ({ range }: Node, standsFor: number) => {
    marks += 1;
    aliased += standsFor;
    if (marks > MAX_ANCHORS_AND_ALIASES || aliased > MAX_ALIASED_VALUES) beyond ??= range?.[0] ?? 0;
  };
  /** How many values a node is, its aliases replaced by what they stand for; an anchor stands before its aliases. */
  const weigh = (node: unknown): number => {
    if (isPair(node)) return weigh(node.key) + weigh(node.value);
    if (isAlias(node)) {
      const weight = weights.get(node.source) ?? 1;
      mark(node, weight);
      return weight;
    }
    let weight = 1;
    if (isMap(node) || isSeq(node)) for (const item of node.items) weight += weigh(item);
    else if (!isScalar(node)) return 0;
    if (node.anchor !== undefined) {
      mark(node, 0);
      weights.set(node.anchor, weight);
    }
    return weight;
  };
  weigh(document.contents);
  return beyond;
}

/** What is wrong with a value that has no end, and in `path` where; null: it has one. */
export function endlessAt(value: unknown, path: PropertyKey[], above: Set<unknown>): string | null {
  if (typeof value !== "object" || value === null) return null;
  if (above.has(value)) return "holds itself through an alias";
  if (above.size >= MAX_DEPTH) return "is nested too deeply";
  above.add(value);
  for (const [key, inner] of Object.entries(value)) {
    path.push(Array.isArray(value) ? Number(key) : key);
    const found = endlessAt(inner, path, above);
    if (found !== null) return found;
    path.pop();
  }
  above.delete(value);
  return null;
}

/** The first alias whose anchor is not before it; in one pass, as the library looks through the whole document for each. */
export function unresolvedAlias(document: Document.Parsed): Alias | null {
  const anchors = new Set<string>();
  let found: Alias | null = null;
  visit(document, {
    Alias: (_, alias) => {
      if (anchors.has(alias.source)) return undefined;
      found = alias;
      return visit.BREAK;
    },
    Value: (_, { anchor }) => {
      if (anchor !== undefined) anchors.add(anchor);
    },
  });
  return found;
}
