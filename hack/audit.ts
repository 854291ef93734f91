/**
 * `npm run audit [-- --data DIR]`: recomputes the books from grants and usage rows and compares everything that
 * keeps them, joins the results of batches to their rows, and counts again what organizations keep. Works beside a running product. Exit 0 when all
 * agrees; 1 with one line for each broken invariant.
 * Without --data it takes DATABASE_URL and REDIS_URL, else the stores of `npm start` in .gapura/.
 */
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { z } from "zod";
import { auditBatches } from "../dataplane/batches/audit.ts";
import { audit } from "../dataplane/billing/audit.ts";
import { auditStorage } from "../dataplane/batches/audit-storage.ts";
import { openPostgres } from "../dataplane/store/postgres.ts";
import { openRedis, redisReady } from "../dataplane/store/redis.ts";

/** Written by hack/start.ts. */
const storesSchema = z.object({ databaseUrl: z.string(), redisUrl: z.string() });

function storeAddresses(data: string | undefined): z.infer<typeof storesSchema> {
  const { DATABASE_URL: databaseUrl, REDIS_URL: redisUrl } = process.env;
  if (data === undefined && databaseUrl !== undefined && redisUrl !== undefined)
    return { databaseUrl, redisUrl };
  // npm runs us in the repository's folder; paths are meant from where the user stands.
  const folder = resolve(process.env["INIT_CWD"] ?? process.cwd(), data ?? ".gapura");
  const file = join(folder, "stores.json");
  try {
    return storesSchema.parse(JSON.parse(readFileSync(file, "utf8")));
  } catch {
    throw new Error(
      `there is no ${file}: start the product with this data folder, or set DATABASE_URL and REDIS_URL`,
    );
  }
}

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { data: { type: "string" } } });
  const { databaseUrl, redisUrl } = storeAddresses(values.data);
  const redis = openRedis(redisUrl, { commandTimeoutMs: 30_000, onError: () => {} });
  try {
    await redisReady(redis, 5_000);
    const pool = await openPostgres(databaseUrl, {
      maxConnections: 2,
      statementTimeoutMs: 600_000,
      connectWithinMs: 5_000,
      onError: () => {},
    });
    const { organizations, usageRows, holds, ...books } = await audit(pool, redis);
    const broken = [...books.broken, ...(await auditBatches(pool)), ...(await auditStorage(pool))];
    await pool.end();
    for (const line of broken) console.log(line);
    const checked = `${organizations} accounts, ${usageRows} usage rows, ${holds} holds`;
    console.log(broken.length === 0 ? `exact: ${checked}` : `${broken.length} broken: ${checked}`);
    return broken.length === 0 ? 0 : 1;
  } finally {
    redis.disconnect();
  }
}

try {
  process.exit(await main());
} catch (error) {
  console.error(`audit: ${error instanceof Error ? error.message : String(error)}`);
  process.exit(2);
}
