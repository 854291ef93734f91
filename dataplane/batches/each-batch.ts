import { isStoreAway } from "../store/store-away.ts";
import type { BatchContext } from "./context.ts";

/**
 * Calls `act` for each batch, one after the other. A failure is logged and stops no other batch; the next round tries again.
 * @throws Error of a store that is away: the other batches would only wait for it, too.
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
