import { isStoreAway } from "../../store/store-away.ts";
import type { BatchContext } from "../context.ts";

/**
 * Does it to each of these batches, one after the other. One that fails holds up no other: it is told, and comes again.
 * @throws Error of a store that is away: the others would only wait for it, too.
 */
export async function eachBatch(
  { log }: Pick<BatchContext, "log">,
  ids: readonly string[],
  what: string,
  act: (id: string) => Promise<unknown>,
): Promise<void> {
  for (const id of ids)
    await act(id).catch((error: unknown) => {
      if (isStoreAway(error)) throw error;
      log.warn({ err: error, batch: id }, `a batch could not be ${what} yet`);
    });
}
