/**
 * Resolves when the work is done or the time is up, whichever comes first: for the end of a process, which a store that
 * answers nothing must not keep. @throws what the work throws in time.
 */
export async function within(timeoutMs: number, work: () => Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, timeoutMs);
  });
  try {
    await Promise.race([work(), late]);
  } finally {
    clearTimeout(timer);
  }
}
