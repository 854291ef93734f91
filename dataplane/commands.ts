/**
 * The program's short commands, which main.ts lists. Each throws an Error that says what is wrong, and loads its modules only when
 * it runs.
 */
import type { DatabasePool } from "slonik";
import { readDatabaseUrl, readMigrateUrl, readStores } from "./environment.ts";
import { wordsOf } from "./lib/words-of.ts";

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

/** @throws Error if a command without arguments gets some: somebody who adds `--help` does not mean to start it. */
function refuseArguments(command: string, args: readonly string[]): void {
  if (args.length > 0) throw new Error(`usage: ${command}, without arguments`);
}

const say = (line: string) => process.stderr.write(`gapura: ${line}\n`);
const print = (lines: readonly string[]) => {
  for (const line of lines) process.stdout.write(`${line}\n`);
};

/** Opens Postgres. While it is away, waits for the default time and says so. */
async function postgresOf(url: string): Promise<DatabasePool> {
  const { openPostgres } = await import("./store/postgres.ts");
  const { nowAndThen } = await import("./store/once-there.ts");
  const onAway = nowAndThen((error) => say(`waiting for Postgres: ${wordsOf(error)}`));
  return await openPostgres(url, { maxConnections: 1, onError: () => {}, onAway });
}

/** Does work on Postgres, which may change data (a grant) or only read it, and prints the lines that it returns. */
async function printFrom(
  environment: NodeJS.ProcessEnv,
  work: (postgres: DatabasePool) => Promise<readonly string[]>,
): Promise<void> {
  const url = readDatabaseUrl(environment);
  const postgres = await postgresOf(url);
  try {
    print(await work(postgres));
  } finally {
    await postgres.end();
  }
}

async function runMigrations(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
  refuseArguments("migrate", args);
  const { migrate } = await import("./store/migrate.ts");
  await migrate(readMigrateUrl(environment), { say });
  say("the database is up to date");
}

async function runGrant(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
  const { grant, parseGrant } = await import("./billing/ledger/grant-command.ts");
  const request = parseGrant(args);
  await printFrom(environment, async (postgres) => [await grant(postgres, request)]);
}

async function runRelease(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
  const { parseRelease, releaseOrganizationId } = await import("./identity/owners.ts");
  const id = parseRelease(args);
  await printFrom(environment, async (postgres) => [await releaseOrganizationId(postgres, id)]);
}

async function runAuditLog(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
  const { parseAuditQuery, printAuditLog } = await import("./identity/audit-log-command.ts");
  const query = parseAuditQuery(args);
  await printFrom(environment, (postgres) => printAuditLog(postgres, query));
}

async function runWhy(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
  const { parseWhy, whyLines } = await import("./requests/why-command.ts");
  const { findRequest } = await import("./requests/read-records.ts");
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
  const { adopt } = await import("./billing/holds/adopt-command.ts");
  const { openRedis, redisReady } = await import("./store/redis.ts");
  const { createLogger } = await import("./telemetry/log.ts");
  const { newId } = await import("./lib/ids.ts");
  const postgres = await postgresOf(DATABASE_URL);
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
  const { reconcile } = await import("./reconcile.ts");
  const { exact, lines } = await reconcile(DATABASE_URL, REDIS_URL);
  print(lines);
  process.exitCode = exact ? 0 : 1;
}
