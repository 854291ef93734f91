/**
 * Weighted rendezvous hashing (design.md §4.6): each upstream gets a score from the conversation's key and its own
 * name, and the scores are ranked. A conversation keeps its upstream as long as that exists, whichever others come
 * and go, and shares follow the weights. Pure.
 */

export interface Weighted {
  readonly name: string;
  /** Share of the conversations; 0: only when no other upstream is left. */
  readonly weight: number;
}

/** Sorts the upstreams in the order in which `key` prefers them. */
export function rank<T extends Weighted>(upstreams: readonly T[], key: string): T[] {
  if (upstreams.length < 2) return [...upstreams];
  const drawn = upstreams.map((upstream) => ({ upstream, score: score(key, upstream) }));
  drawn.sort((one, other) => other.score - one.score || (one.upstream.name < other.upstream.name ? -1 : 1));
  return drawn.map(({ upstream }) => upstream);
}

/** With u uniform in (0, 1), `-weight / ln u` is largest with a probability in proportion to the weight. */
function score(key: string, { name, weight }: Weighted): number {
  const unit = (hash(`${name}\u0000${key}`) + 0.5) / 2 ** 53;
  return weight === 0 ? unit - 1 : -weight / Math.log(unit);
}

/**
 * Hashes a text to 53 evenly spread bits (cyrb53: two multiply-xor lanes and a final mix). Not safe against an
 * adversary: a client that chooses its key well only chooses its upstream.
 */
export function hash(text: string): number {
  let low = 0xdeadbeef;
  let high = 0x41c6ce57;
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index);
    low = Math.imul(low ^ unit, 2654435761);
    high = Math.imul(high ^ unit, 1597334677);
  }
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909);
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909);
  return 4294967296 * (2097151 & high) + (low >>> 0);
}
