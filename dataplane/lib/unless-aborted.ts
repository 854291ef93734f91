/**
 * Awaits work that notices an abort too late: an undici request that is waiting for its connection goes on waiting.
 * @throws the reason of `signal`, or what the work throws.
 */
export async function unlessAborted<Value>(work: () => Promise<Value>, signal: AbortSignal): Promise<Value> {
  signal.throwIfAborted();
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const leave = () => reject(signal.reason);
  signal.addEventListener("abort", leave, { once: true });
  try {
    return await Promise.race([work(), aborted]);
  } finally {
    signal.removeEventListener("abort", leave);
  }
}
