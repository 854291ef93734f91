import type { BodyLease } from "../call.ts";

/** So much of an answer may wait for its reader without being counted, about what a socket holds. */
const UNCOUNTED_BYTES = 64 * 1024;

/** Counts what waits for a slow reader until it is taken (rule 7.2): one event of a stream may be 8 MiB. */
export async function countUntil(
  taken: Promise<void>,
  bytes: number,
  lease: Pick<BodyLease, "count" | "giveBack">,
): Promise<void> {
  if (bytes <= UNCOUNTED_BYTES) return taken;
  lease.count(bytes);
  try {
    await taken;
  } finally {
    lease.giveBack(bytes);
  }
}
