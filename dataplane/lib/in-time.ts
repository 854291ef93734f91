/**
 * The work's outcome, for whoever cannot wait for ever; the work itself goes on, unseen.
 * @throws what `late` makes once `ms` are over.
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
