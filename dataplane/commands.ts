/** What the program does besides serving: short commands, which main.ts lists. Each says what is wrong by an Error. */
import type { DatabasePool } from "slonik";
import { adopt } from "./billing/adopt-command.ts";
import { grant, parseGrant } from "./billing/grant-command.ts";
import { readDatabaseUrl, readMigrateUrl, readStores } from "./environment.ts";
import { parseAuditQuery, printAuditLog } from "./identity/audit-log-command.ts";
import { parseRelease, releaseOrganizationId } from "./identity/owners.ts";
import { newId } from "./lib/ids.ts";
import { reconcile } from "./reconcile.ts";
import { findRequest } from "./requests/read-records.ts";
import { parseWhy, whyLines } from "./requests/why-command.ts";
import { migrate } from "./store/migrate.ts";
import { openPostgres } from "./store/postgres.ts";
import { openRedis, redisReady } from "./store/redis.ts";
import { createLogger } from "./telemetry/log.ts";

type Command = (args: readonly string[], environment: NodeJS.ProcessEnv) => Promise<void>;

/** By the words that main.ts is called with. */
export const commands: ReadonlyMap<string, Command> = new Map<string, Command>([
  ["migrate", runMigrations],
  ["grant", runGrant],
  ["adopt", runAdopt],
  ["reconcile", runReconcile],
  ["release-organization", runRelease],
  ["audit-log", runAuditLog],
  ["why", runWhy],
]);

/** @throws Error where a command that takes no arguments got some: who asks for help does not mean to start it. */
function refuseArguments(command: string, args: readonly string[]): void {
  if (args.length > 0) throw new Error(`usage: ${command}, without arguments`);
}

const print = (lines: readonly string[]) => {
  for (const line of lines) process.stdout.write(`${line}\n`);
};

/** Prints what comes of a look into Postgres. */
async function printFrom(
  environment: NodeJS.ProcessEnv,
  work: (postgres: DatabasePool) => Promise<readonly string[]>,
): Promise<void> {
  const url = readDatabaseUrl(environment);
  const postgres = await openPostgres(url, { maxConnections: 1, onError: () => {} });
  try {
    print(await work(postgres));
  } finally {
    await postgres.end();
  }
}

async function runMigrations(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
  refuseArguments("migrate", args);
  await migrate(readMigrateUrl(environment), { say: (line) => process.stderr.write(`gapura: ${line}\n`) });
}

async function runGrant(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
  const request = parseGrant(args);
  await printFrom(environment, async (postgres) => [await grant(postgres, request)]);
}

async function runRelease(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
  const id = parseRelease(args);
  await printFrom(environment, async (postgres) => [await releaseOrganizationId(postgres, id)]);
}

async function runAuditLog(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
  const query = parseAuditQuery(args);
  await printFrom(environment, (postgres) => printAuditLog(postgres, query));
}

async function runWhy(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
  const { id, json } = parseWhy(args);
  await printFrom(environment, async (postgres) => {
    const request = await findRequest(postgres, id);
    if (request === null) throw new Error(`${id} is not known, or no longer kept`);
    return whyLines(request, json);
  });
}

async function runAdopt(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
  refuseArguments("adopt", args);
  const { DATABASE_URL, REDIS_URL } = readStores(environment);
  const postgres = await openPostgres(DATABASE_URL, { maxConnections: 1, onError: () => {} });
  const redis = openRedis(REDIS_URL, { onError: () => {} });
  try {
    await redisReady(redis, 10_000);
    const options = { log: createLogger("silent"), newEpoch: () => newId("req") };
    print(await adopt(postgres, redis, options));
  } finally {
    redis.disconnect();
    await postgres.end();
  }
}

async function runReconcile(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
  refuseArguments("reconcile", args);
  const { DATABASE_URL, REDIS_URL } = readStores(environment);
  const { exact, lines } = await reconcile(DATABASE_URL, REDIS_URL);
  print(lines);
  process.exitCode = exact ? 0 : 1;
}
