/** Order, concurrency and waiting time of calls of the API server. */

/** Acts on all in their order, at most `width` at a time; the first failure is thrown. */
export async function inParallel<Item>(
  items: readonly Item[],
  width: number,
  act: (item: Item) => Promise<void>,
): Promise<void> {
  const queue = items.toReversed();
  const worker = async () => {
    for (let item = queue.pop(); item !== undefined; item = queue.pop()) await act(item);
  };
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, worker));
}

/** Orders items: one of each owner, then the next of each, and so on. */
export function inTurns<Item>(items: readonly Item[], ownerOf: (item: Item) => unknown): Item[] {
  const ordered: Item[] = [];
  let queues = [...Map.groupBy(items, ownerOf).values()];
  for (let turn = 0; queues.length > 0; turn += 1) {
    queues = queues.filter(({ length }) => length > turn);
    ordered.push(...queues.flatMap((queue) => queue.slice(turn, turn + 1)));
  }
  return ordered;
}

/** Whether the work ends within `ms`; slower work goes on. @throws what the work throws in that time. */
export async function isDoneWithin(ms: number, work: Promise<unknown>): Promise<boolean> {
  const { promise: late, resolve } = Promise.withResolvers<boolean>();
  const timer = setTimeout(resolve, ms, false);
  try {
    return await Promise.race([work.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}
