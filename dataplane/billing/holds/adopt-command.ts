/** `main.ts adopt`: takes a restored Postgres for the ledger, and charges again what it has lost and Redis knows. */
import type { RedisStore } from "../../store/redis-servers.ts";
import type { Logger } from "pino";
import type { DatabasePool } from "slonik";
import { creditsText } from "../credits.ts";
import { readLedgerId } from "../ledger/ledger-identity.ts";
import { LedgerGuard } from "./ledger-guard.ts";
import { Shards } from "./shards.ts";

/** Returns a line for each organization that lost charges, and a last one. @throws Error when it cannot be done. */
export async function adopt(
  pool: DatabasePool,
  redis: RedisStore,
  { log, newEpoch }: { readonly log: Logger; readonly newEpoch: () => string },
): Promise<readonly string[]> {
  const ledger = await readLedgerId(pool);
  const { all: shards } = new Shards({
    redis,
    ledger,
    newEpoch,
    onLost: () => [],
    onRestored: () => {},
    onTaken: () => {},
  });
  const guard = new LedgerGuard({
    redis,
    pool,
    log,
    ledger,
    shards,
    takeDoubtful: () => [],
    onOther: () => {},
    atFirst: "charge",
  });
  const losses = await guard.look();
  if (guard.fault !== null) throw new Error(guard.fault);
  const lines = losses.map(
    ({ organizationId, lost }) => `${organizationId}: lost ${creditsText(lost)} credits`,
  );
  const outcome = losses.length === 0 ? "nothing was lost" : "what was lost is charged";
  return [...lines, `Redis goes on with this Postgres; ${outcome}`];
}
