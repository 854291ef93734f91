import { MAX_BATCH_BYTES } from "../batches/batch.ts";
import { HELD_BYTES } from "../files/contents.ts";
import { bodyLimits } from "../lib/body-limits.ts";

/**
 * Limits of the HTTP side, in bytes and milliseconds. Further limits: how long uploads live in upload-form.ts, what an answer
 * sends in one piece in answer-sink.ts, how many addresses are known in unknown-callers.ts.
 */
export const limits = {
  /** An inference body after its content encoding is removed (rule 1.17). */
  inferenceBodyBytes: bodyLimits.bytes,
  /** The body that creates a message batch (rule 4.7). */
  batchBodyBytes: MAX_BATCH_BYTES,
  /** An uploaded file (dialects.md §A5). */
  fileBytes: 512 * 1024 * 1024,
  /** An upload's whole form, encoded and decoded: its file, its fields and the headers of them all. */
  formBytes: 520 * 1024 * 1024,
  /** Bytes of an upload that are in memory at once: the largest part that a store takes. */
  uploadHeldBytes: HELD_BYTES,
  /** One field of an upload's form, and how many there may be. */
  formFieldBytes: 64 * 1024,
  formFields: 50,
  /** Up to here a body costs less to read than asking Redis about limits. */
  shortBodyBytes: 64 * 1024,
  /** A longer body that is read whole comes in turns with all others, at this rate of (decoded) bytes for the process. */
  quickBodyBytes: 1024 * 1024,
  largeBodyBytesPerSecond: 128 * 1024 * 1024,
  /** JSON bodies of every other resource: parsed on the main thread, so small that the worst takes milliseconds. */
  smallBodyBytes: 128 * 1024,
  /** All request headers together; beyond it 431. */
  headerBytes: 32 * 1024,
  headerCount: 200,
  /** A client that trickles its headers is cut (slow loris). */
  headersTimeoutMs: 20_000,
  /** From the first byte of a request to the last of its body, which may be a file of 512 MiB. */
  requestTimeoutMs: 600_000,
  /** Without a single byte of the body for this long: 408. */
  bodyIdleMs: 30_000,
  /** The rest of a refused body is read and dropped for so long, so that its sender gets to see the answer. */
  restMs: 30_000,
  /** So much of that rest comes unhindered; more, and bodies in tiny chunks, in turns at this rate for the process. */
  freeRestBytes: 64 * 1024,
  slowReadBytesPerSecond: 64 * 1024 * 1024,
  /** Most connections at a time whose rest is dropped after the answer; beyond it the oldest of whoever has the most is closed. */
  lingering: 512,
  /** Bytes of chunk frames, above a sixteenth of the contents, beyond which a body is read slowly. */
  frameBytes: 4 * 1024,
  /** Without a byte of a refused body's rest for this long its connection is closed. */
  restIdleMs: 5_000,
  /** How often the time-outs of headers, bodies and answers are looked at. */
  connectionsCheckMs: 2_000,
  /** Longer than an ingress keeps idle connections (the longest known is 600 s), so that the gateway never hangs up first. */
  keepAliveMs: 620_000,
  /** A connection on which no valid key was shown is closed after so much idleness (rule 7.7). */
  keylessIdleMs: 10_000,
  /** How often connections without a valid key are looked at. */
  keylessCheckMs: 1_000,
  /** Requests of one address that are refused as having an unknown, malformed or missing key; further ones get 429. */
  refusalsPerSecond: 20,
  /** Keys that are not remembered, over all addresses, that are looked up at once; further ones wait in the queue. */
  unknownKeysPerSecond: 200,
  /** A client that takes nothing of its answer for this long is cut (design.md §4.7). */
  stalledClientMs: 60_000,
  /** So much of an answer may wait for a slow client without being counted, about what a socket holds. */
  uncountedAnswerBytes: 64 * 1024,
  /** The event loop's mean delay, over half a second twice in a row, beyond which new inference is refused. */
  loopDelayMs: 250,
  /** Part of the heap's limit beyond which new inference is refused. */
  heapShare: 0.92,
  /** Part of the process' memory limit that may be resident; beyond it new inference is refused. */
  residentShare: 0.9,
  /** Requests of one connection that may come before an earlier one is answered. */
  pipelined: 16,
  /** Open connections of one process; beyond it new ones are closed at once. */
  connections: 20_000,
  /**
   * Open connections with a key (more than the 10,000 streams of design.md §8) from which on an organization that has
   * `connectionsOfOne`, a quarter of all, gets no more, nor does one that has twice as many as are left. As many are the most that
   * one has, also of those handed to it by others.
   */
  connectionsWithoutShares: 12_000,
  connectionsOfOne: 5_000,
} as const;
