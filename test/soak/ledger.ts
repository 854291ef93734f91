/** What the stores of a soak say at a quiet point, past the proxies, and what is served. */
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { reconcile } from "../../dataplane/reconcile.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import type { Item, Row } from "./log.ts";
import { keys } from "./manifests.ts";
import { planeIndexes } from "./plan.ts";
import type { SoakWorld } from "./world.ts";

/** What `npm run reconcile` finds broken, and holds that are still there; none: all is exact. */
export async function reconcileWorld({ stores }: SoakWorld): Promise<readonly string[]> {
  try {
    const { exact, lines } = await reconcile(stores.postgres.url, stores.redis.url);
    if (!exact) return lines;
    return lines.filter((line) => !line.endsWith(", 0 holds"));
  } catch (error) {
    return [`it cannot look: ${(error as Error).message}`];
  }
}

async function withPool<T>({ stores }: SoakWorld, use: (pool: DatabasePool) => Promise<T>): Promise<T> {
  const pool = await openPostgres(stores.postgres.url, { maxConnections: 1, onError: () => {} });
  try {
    return await use(pool);
  } finally {
    await pool.end();
  }
}

const rowSchema = z.object({
  id: z.string(),
  tags: z.string(),
  model: z.string(),
  iterations: z.number(),
  estimated: z.boolean(),
  provisional: z.boolean(),
  input: z.bigint(),
  output: z.bigint(),
  searches: z.bigint(),
  cost: z.bigint(),
});

export async function readRows(world: SoakWorld): Promise<Row[]> {
  const rows = await withPool(world, (pool) =>
    pool.any(sql.type(rowSchema)`
      select id, coalesce(tags, '') as tags, model, iterations, estimated, provisional, input_tokens as input,
        output_tokens as output, web_searches as searches, cost_micros as cost
      from usage
    `),
  );
  return rows.map(({ tags, ...row }) => {
    const marker = /^m=(\d+)$/.exec(tags)?.[1];
    return { ...row, marker: marker === undefined ? null : Number(marker) };
  });
}

const itemSchema = z.object({
  batchId: z.string(),
  customId: z.string(),
  output: z.bigint().nullable(),
});

export async function readItems(world: SoakWorld): Promise<Item[]> {
  const items = await withPool(world, (pool) =>
    pool.any(sql.type(itemSchema)`
      select item.batch_id as "batchId", item.custom_id as "customId", usage.output_tokens as output
      from batch_items item left join usage on usage.id = item.request_id
    `),
  );
  return items.map((item) => ({ ...item, customId: JSON.parse(item.customId) as string }));
}

/** Whether each data plane serves the route that comes and goes, as it is declared now. */
export async function servedEverywhere(world: SoakWorld): Promise<boolean> {
  for (const plane of planeIndexes) {
    const answer = await fetch(`${world.url(plane)}/v1/models?limit=1000`, {
      headers: { "x-api-key": keys.inference },
    }).catch(() => null);
    if (answer?.ok !== true) return false;
    const { data } = (await answer.json()) as { data: { id: string }[] };
    const extras = data.map(({ id }) => id).filter((id) => id.startsWith("m-extra-"));
    if (extras.join() !== (world.edited.extra ?? "")) return false;
  }
  return true;
}
