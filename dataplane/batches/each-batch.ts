import type { BatchContext } from "./context.ts";

/** Does it to each of these batches, one after the other. One that fails holds up no other: it is told, and comes again. */
export async function eachBatch(
  { log }: Pick<BatchContext, "log">,
  ids: readonly string[],
  what: string,
  act: (id: string) => Promise<unknown>,
): Promise<void> {
  for (const id of ids)
    await act(id).catch((error: unknown) => {
      log.warn({ err: error, batch: id }, `a batch could not be ${what} yet`);
    });
}
