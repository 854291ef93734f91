/**
 * Limits of upstream calls. Limits of a single mechanism stand with it: ejections in health.ts, back-off in pick.ts, token
 * counts in count-tokens.ts.
 */
import type { OverheadLimits } from "./overhead.ts";

/** Connections to one origin; a stream occupies one for its whole life (design.md §8: 10,000 open streams). */
export const MAX_CONNECTIONS_PER_ORIGIN = 20_000;
/** How long an idle connection is kept, unless the upstream hints at less. Below the usual 60 s of load balancers. */
export const KEEP_ALIVE_MS = 30_000;
/** Longest connection attempt, even if a route allows more. */
export const MAX_CONNECT_MS = 60_000;
/** Response headers of an upstream. */
export const MAX_HEADER_BYTES = 64 * 1024;
/**
 * Interim answers (1xx) before one answer: some servers send one every few seconds. Without a limit one that sends nothing else
 * keeps the main thread busy.
 */
export const MOST_INTERIM_ANSWERS = 1_000;
/** Bytes of an answer besides its contents: blanks, and frames, of which chunks of a single byte have five for each. */
export const OVERHEAD: OverheadLimits = { freeBytes: 1024 * 1024, perContentByte: 8 };
/** A whole answer, decompressed. Beyond it the answer is refused as corrupt. */
export const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
/** Objects and arrays of a whole answer: each token's alternatives are forty, in some two kilobytes. One with more takes too much memory to read. */
export const MAX_ANSWER_CONTAINERS = 2_000_000;
/** So much of a whole answer is read before its bytes are counted (rule 7.2): most answers are shorter, and counting costs each packet. */
export const UNCOUNTED_BYTES = 64 * 1024;
/** Of a whole answer that broke off so much is read for what it says; more than that models do not write. */
export const MOST_BEGUN_BYTES = 1024 * 1024;
/** Most bytes read of an upstream's error body; the rest is discarded with its connection. */
export const MAX_ERROR_BYTES = 64 * 1024;
/** Longest wait for an error body; the status alone is enough to continue. */
export const ERROR_BODY_MS = 2_000;
/** How long, and how far, an answer whose client has left is read on for its usage report (rule 1.11). */
export const UNSEEN_MS = 2_000;
export const MAX_UNSEEN_BYTES = 256 * 1024;
/** Chunks of it: each takes some six microseconds, however short it is. */
export const MAX_UNSEEN_CHUNKS = 16_384;
/** How long a finished upstream may take to close its answer, so that its connection can be used again. */
export const LINGER_MS = 1_000;
/** Bodies above this size are sent in pieces of that, so that it is known when the last of them has gone out. */
export const WHOLE_BODY_BYTES = 64 * 1024;
export const PIECE_BYTES = 256 * 1024;
/** Default for the first byte of a stream whose route names none (service.md "Configuration"). */
export const STREAM_FIRST_BYTE_MS = 120_000;
/** An upstream that names a longer time than this in `retry-after` is not waited for; the client is told instead. */
export const MAX_RETRY_WAIT_MS = 5_000;
