/**
 * Runs `work` on all items in order, at most `most` at a time. Returns a promise for each item, in item order; none of them
 * causes an unhandled rejection.
 */
export function atMost<Item, Result>(
  most: number,
  items: readonly Item[],
  work: (item: Item) => Promise<Result>,
): readonly Promise<Result>[] {
  const jobs = items.map((item) => ({ item, ...Promise.withResolvers<Result>() }));
  const queue = jobs.values();
  /** Makes a synchronous throw of `work` a rejection. */
  const begin = async (item: Item) => work(item);
  const takeTurns = async () => {
    for (const { item, promise, resolve } of queue) {
      const done = promise.then(nothing, nothing);
      resolve(begin(item));
      await done;
    }
  };
  // It awaits nothing that can reject.
  for (let worker = 0; worker < Math.max(1, most); worker += 1) takeTurns().catch(nothing);
  return jobs.map(({ promise }) => promise);
}

const nothing = () => undefined;
