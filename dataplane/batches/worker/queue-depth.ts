import { sql } from "slonik";
import { z } from "zod";
import { metrics } from "../../telemetry/metrics.ts";
import type { BatchContext } from "../context.ts";

const schema = z.object({
  state: z.enum(["waiting", "running"]),
  items: z.bigint(),
  oldest: z.number().nullable(),
});

/** Sets the metrics of items that wait and run: how many, and the age of the oldest. */
export async function measureQueue({ pool, clock }: BatchContext): Promise<void> {
  const rows = await pool.any(sql.type(schema)`
    select 'waiting' as state, count(*) as items, min(accepted_at) as oldest from batch_items where state = 'waiting'
    union all
    select 'running', count(*), min(accepted_at) from batch_items where state = 'running'
  `);
  for (const { state, items, oldest } of rows) {
    metrics.batchItems.set({ state }, Number(items));
    metrics.batchAge.set({ state }, oldest === null ? 0 : Math.max(0, (clock.now() - oldest) / 1000));
  }
}
