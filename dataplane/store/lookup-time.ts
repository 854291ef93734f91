/** How long a request waits for what Postgres knows: a frozen one must not hold every request. */
const LOOKUP_MS = 2_000;

/** @throws Error after `LOOKUP_MS`. */
export async function lookedUpInTime<Value>(work: Promise<Value>): Promise<Value> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`Postgres did not answer in ${LOOKUP_MS} ms`)), LOOKUP_MS);
  try {
    return await Promise.race([work, promise]);
  } finally {
    clearTimeout(timer);
  }
}
