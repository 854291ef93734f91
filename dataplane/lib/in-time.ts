/**
 * Awaits the work for at most `ms`. After that the work goes on, and its outcome is ignored.
 * @throws the error that `late` makes when the time is up.
 */
export async function inTime<Value>(ms: number, work: Promise<Value>, late: () => Error): Promise<Value> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(late()), ms);
  try {
    return await Promise.race([work, promise]);
  } finally {
    clearTimeout(timer);
  }
}
