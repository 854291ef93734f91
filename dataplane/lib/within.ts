/**
 * Resolves when the work is done or the time is up, whichever comes first: for the end of a process, which a store that
 * answers nothing must not keep. @returns whether the work is done. @throws what it throws in time.
 */
export async function within(timeoutMs: number, work: () => Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), timeoutMs);
  });
  try {
    return await Promise.race([work().then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}
