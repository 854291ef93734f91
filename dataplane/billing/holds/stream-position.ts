/** Position of a charge in the stream of its shard, which the ledger reads in order. */

/** Id of an entry of a shard's stream. */
export type StreamPosition = string;
/** Before every entry: position of what the ledger has already. */
export const BEFORE_ALL: StreamPosition = "0-0";

/**
 * Whether an entry is `other`, or before it. Runs for every charge: the numbers of an id have no leading zeros, so they are
 * compared as text, by their lengths first.
 */
export function isUpTo(entry: StreamPosition, other: StreamPosition): boolean {
  const dash = entry.indexOf("-");
  const otherDash = other.indexOf("-");
  if (dash !== otherDash) return dash < otherDash;
  if (entry.length === other.length) return entry <= other;
  const ms = entry.slice(0, dash);
  const otherMs = other.slice(0, otherDash);
  return ms === otherMs ? entry.length < other.length : ms < otherMs;
}
