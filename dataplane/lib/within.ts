/**
 * Resolves when the work is done, the time is up or `hurry` is aborted, whichever comes first. Used at the end of a process,
 * so that an unresponsive store cannot delay it. @returns whether the work is done. @throws what the work throws in time.
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
