/**
 * Resolves when the work is done, the time is up or `hurry` is aborted, whichever comes first: for the end of a process, which
 * a store that answers nothing must not keep. @returns whether the work is done. @throws what it throws in time.
 */
export async function within(
  timeoutMs: number,
  work: () => Promise<unknown>,
  hurry?: AbortSignal,
): Promise<boolean> {
  const { promise: late, resolve } = Promise.withResolvers<false>();
  const timeIsUp = () => resolve(false);
  const timer = setTimeout(timeIsUp, hurry?.aborted === true ? 0 : timeoutMs);
  hurry?.addEventListener("abort", timeIsUp, { once: true });
  try {
    return await Promise.race([work().then(() => true), late]);
  } finally {
    clearTimeout(timer);
    hurry?.removeEventListener("abort", timeIsUp);
  }
}
