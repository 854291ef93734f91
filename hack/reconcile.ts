/**
 * `npm run reconcile [-- --data DIR]`: `main.ts reconcile` (dataplane/reconcile.ts) for the stores of `npm start`, by default
 * those in .gapura/. Without --data it takes DATABASE_URL and REDIS_URL where they are set. Exit 0 when all agrees; 1 with
 * one line for each broken invariant; 2 when it cannot look.
 */
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { z } from "zod";
import { readStores } from "../dataplane/environment.ts";
import { commandArguments } from "../dataplane/lib/command-arguments.ts";
import { reconcile } from "../dataplane/reconcile.ts";

/** Written by hack/start.ts. */
const storesSchema = z.object({ databaseUrl: z.string(), redisUrl: z.string() });

function storeAddresses(data: string | undefined): z.infer<typeof storesSchema> {
  if (data === undefined && "DATABASE_URL" in process.env && "REDIS_URL" in process.env) {
    const { DATABASE_URL: databaseUrl, REDIS_URL: redisUrl } = readStores(process.env);
    return { databaseUrl, redisUrl };
  }
  // npm runs us in the repository's folder; paths are relative to where the user is.
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

try {
  const { values } = commandArguments("usage: npm run reconcile -- [--data DIR]", {
    options: { data: { type: "string" } },
  });
  const { databaseUrl, redisUrl } = storeAddresses(values.data);
  const { exact, lines } = await reconcile(databaseUrl, redisUrl);
  for (const line of lines) console.log(line);
  process.exit(exact ? 0 : 1);
} catch (error) {
  console.error(`reconcile: ${error instanceof Error ? error.message : String(error)}`);
  process.exit(2);
}
