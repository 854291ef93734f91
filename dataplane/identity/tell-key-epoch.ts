/**
 * Tells Redis that keys or limits of an organization have changed (`bumpKeyEpoch`): from then on it refuses holds that rely
 * on what was known before.
 */
import type { Holds } from "../billing/holds/holds.ts";
import { ApiError } from "../lib/api-error.ts";

const ATTEMPTS = 3;

/** @throws ApiError 503: the ledger has the change, but a hold might still be taken as before it for some seconds. */
export async function tellKeyEpoch(holds: Pick<Holds, "refresh">, organizationId: string): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      await holds.refresh([organizationId]);
      return;
    } catch (cause) {
      if (attempt < ATTEMPTS) continue;
      throw new ApiError(
        "unavailable",
        "This was done, but not every process has heard of it yet; it holds everywhere in a few seconds.",
        { retryAfterSeconds: 5, cause },
      );
    }
  }
}
