/**
 * A byte-pair vocabulary in flat tables: 200,000 tokens in some typed arrays instead of as many objects. Built once,
 * in the counting thread. Pure.
 */
import { PairMap } from "./pair-map.ts";

/** Tokens in the order of their ranks: text, or bytes where these are no whole characters. */
export type Ranks = readonly (string | readonly number[])[];

/** No token, no node. */
export const NONE = -1;
/** Number of byte values. */
const BYTES = 256;

export interface Vocabulary {
  /** Bytes of each token. */
  readonly lengths: Uint8Array;
  /** The longest other token that a token begins with, or `NONE`. */
  readonly shorter: Int32Array;
  /** The two tokens that merge into a token; a single byte stands for itself. */
  readonly left: Int32Array;
  readonly right: Int32Array;
  /** What two tokens merge into. */
  readonly merges: PairMap;
  /** The prefix tree of all tokens: from a node, by a byte, to the next node. The root is 0. */
  readonly edges: PairMap;
  /** The token that ends in a node, or `NONE`. */
  readonly tokenOf: Int32Array;
  /** The tree's first steps, which each walk takes: the token of one byte, and the node after two bytes. */
  readonly byteTokens: Int32Array;
  readonly secondNodes: Int32Array;
}

/** Builds the tables. @param ranks must contain each single byte. A token's rank is its number. */
export function buildVocabulary(ranks: Ranks): Vocabulary {
  const { bytes, starts, lengths } = bytesOf(ranks);
  const end = (token: number) => (starts[token] ?? 0) + (lengths[token] ?? 0);
  // Tokens share most of their beginnings: there are about two nodes for each token.
  const edges = new PairMap(2.5 * ranks.length);
  const nodes = [NONE];
  for (const token of ranks.keys()) {
    let node = 0;
    for (let at = starts[token] ?? 0; at < end(token); at += 1) {
      const byte = bytes[at] ?? 0;
      let next = edges.get(node, byte);
      if (next === NONE) {
        next = nodes.push(NONE) - 1;
        edges.set(node, byte, next);
      }
      node = next;
    }
    nodes[node] = token;
  }
  const tokenOf = Int32Array.from(nodes);
  const shorter = new Int32Array(ranks.length).fill(NONE);
  for (const token of ranks.keys()) {
    let node = 0;
    for (let at = starts[token] ?? 0; at < end(token) - 1; at += 1) {
      node = edges.get(node, bytes[at] ?? 0);
      const found = tokenOf[node] ?? NONE;
      if (found !== NONE) shorter[token] = found;
    }
  }
  const left = Int32Array.from(ranks.keys());
  const right = Int32Array.from(ranks.keys());
  const merges = new PairMap(ranks.length);
  const everyByte = Array.from({ length: BYTES }, (_, byte) => byte);
  const firstNodes = everyByte.map((byte) => edges.get(0, byte));
  const byteTokens = Int32Array.from(firstNodes, (node) => tokenOf[node] ?? NONE);
  const secondNodes = Int32Array.from(
    firstNodes.flatMap((node) => everyByte.map((byte) => edges.get(node, byte))),
  );
  const tree = { edges, tokenOf, byteTokens, secondNodes };
  const vocabulary: Vocabulary = { ...tree, lengths, shorter, left, right, merges };
  // Earlier ranks first: a token is made of two earlier ones, in the one way that leads to it.
  for (const token of ranks.keys()) {
    for (let first = shorter[token] ?? NONE; first !== NONE; first = shorter[first] ?? NONE) {
      const from = (starts[token] ?? 0) + (lengths[first] ?? 0);
      const second = tokenOf[walk(edges, bytes, from, end(token))] ?? NONE;
      if (first < token && second !== NONE && second < token && stayApart(vocabulary, first, second)) {
        left[token] = first;
        right[token] = second;
        merges.set(first, second, token);
        break;
      }
    }
  }
  return vocabulary;
}

/** Returns the node after some bytes, or `NONE`. */
function walk(edges: PairMap, bytes: Uint8Array, from: number, to: number): number {
  let node = 0;
  for (let at = from; at < to && node !== NONE; at += 1) node = edges.get(node, bytes[at] ?? 0);
  return node;
}

/** Returns the longest token that the bytes begin with, `NONE` only at their end, as each byte is a token. */
export function longestToken(
  { edges, tokenOf, byteTokens, secondNodes }: Vocabulary,
  bytes: Uint8Array,
  from: number,
  to: number,
): number {
  if (from >= to) return NONE;
  const first = bytes[from] ?? 0;
  let longest = byteTokens[first] ?? NONE;
  if (from + 1 === to) return longest;
  let node = secondNodes[first * BYTES + (bytes[from + 1] ?? 0)] ?? NONE;
  for (let at = from + 2; node !== NONE; at += 1) {
    const token = tokenOf[node] ?? NONE;
    if (token !== NONE) longest = token;
    if (at === to) break;
    node = edges.get(node, bytes[at] ?? 0);
  }
  return longest;
}

/**
 * Whether byte-pair encoding of these two tokens' bytes gives these two tokens. Undoes the merges on both sides of
 * the border, the latest first, and asks at each step whether a pair across the border would have been merged before.
 */
export function stayApart({ merges, left, right }: Vocabulary, first: number, second: number): boolean {
  let one = first;
  let other = second;
  // A merge at this rank or later comes too late to prevent the present pair.
  let limit = Number.MAX_SAFE_INTEGER;
  for (;;) {
    const merged = merges.get(one, other);
    if (merged !== NONE && merged < limit) return false;
    // The later merge is undone first; of equal ones that on the left was made first.
    const oneIsLater = one > other;
    const inner = oneIsLater ? (right[one] ?? one) : (left[other] ?? other);
    if (inner !== (oneIsLater ? one : other)) {
      limit = oneIsLater ? one : other + 1;
      if (oneIsLater) one = inner;
      else other = inner;
      continue;
    }
    // This side is down to a single byte: the other side is undone further.
    const rest = oneIsLater ? (left[other] ?? other) : (right[one] ?? one);
    if (rest === (oneIsLater ? other : one)) return true;
    limit = oneIsLater ? other + 1 : one;
    if (oneIsLater) other = rest;
    else one = rest;
  }
}

/** All tokens' bytes in one array, and where each begins. */
function bytesOf(ranks: Ranks) {
  const encoder = new TextEncoder();
  const starts = new Int32Array(ranks.length);
  const lengths = new Uint8Array(ranks.length);
  const bytes = new Uint8Array(ranks.reduce((sum, { length }) => sum + 3 * length, 0));
  let at = 0;
  for (const [token, value] of ranks.entries()) {
    starts[token] = at;
    if (typeof value === "string") at += encoder.encodeInto(value, bytes.subarray(at)).written;
    else for (const byte of value) bytes[at++] = byte;
    lengths[token] = at - (starts[token] ?? 0);
  }
  return { bytes, starts, lengths };
}
