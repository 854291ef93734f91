/** Bounds on the YAML of one document, each checked in one pass: repeated keys, aliases, nesting. Pure. */
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

/** Most anchors and aliases of one document; the library looks for the anchor of each alias among all of both. */
export const MAX_ANCHORS_AND_ALIASES = 10_000;
/** Most values that the aliases stand for together; more is an alias bomb. */
export const MAX_ALIASED_VALUES = 400_000;
/** Deepest nesting, as code that visits values recurses. Without aliases the parser stops before this by itself. */
const MAX_DEPTH = 1000;

/** Returns a key that its map has twice, or null. The library compares each key with all before it: minutes for 30,000. */
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

/** Returns where a document exceeds `MAX_ANCHORS_AND_ALIASES` or `MAX_ALIASED_VALUES`; null: nowhere. */
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
  /** Counts the values of a node, its aliases replaced by what they stand for; an anchor comes before its aliases. */
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

/** Returns what is wrong with a value that is endless or nested too deeply, and in `path` where; null: it is neither. */
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

/** Returns the first alias without an anchor before it; in one pass, as the library searches the whole document for each. */
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
