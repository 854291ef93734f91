/** A data plane from its start to its end: wiring only. Its stores are opened in open-stores.ts, and how it ends stands in end-serving.ts. */
import { randomBytes } from "node:crypto";
import type { AddressInfo } from "node:net";
import { readFileSync } from "node:fs";
import type { Server } from "node:http";
import { totalmem } from "node:os";
import { resolve } from "node:path";
import { getHeapStatistics, setFlagsFromString } from "node:v8";
import type { Logger } from "pino";
import type { DatabasePool } from "slonik";
import manifest from "../package.json" with { type: "json" };
import { ToolRoom } from "./batches/tool-room.ts";
import { openBatches } from "./batches/start.ts";
import { readBalances } from "./billing/balance-metrics.ts";
import { DirectorySync } from "./identity/directory-sync.ts";
import { KeyDirectory } from "./identity/directory.ts";
import { Keys, newInferenceKey } from "./identity/keys.ts";
import { TokenPeople } from "./identity/people.ts";
import { guardedFetchJson } from "./identity/tokens/fetch-json.ts";
import { startMoney } from "./billing/money.ts";
import { UsageRetention } from "./billing/usage-retention.ts";
import { SnapshotLoader } from "./config/load.ts";
import { noSnapshot } from "./config/no-snapshot.ts";
import type { Snapshot } from "./config/snapshot.ts";
import { endServing } from "./end-serving.ts";
import type { Environment } from "./environment.ts";
import { FileStore, type FileStoreOptions } from "./files/file-store.ts";
import { PostgresContents } from "./files/postgres-contents.ts";
import { S3Contents } from "./files/s3-contents.ts";
import { openBodyBudget, usualBodyBudget } from "./http/body-budget.ts";
import { apiRoutes } from "./http/api-routes.ts";
import { readConsole } from "./http/console.ts";
import { drain } from "./http/drain.ts";
import { LiveRequests, loopProbe } from "./http/live-load.ts";
import { Pressure, processProbe } from "./http/pressure.ts";
import { createOpsServer, type OpsNeeds, type ProcessPhase } from "./http/ops-server.ts";
import { createServer } from "./http/server.ts";
import { UnknownCallers } from "./http/unknown-callers.ts";
import { withFileReferences } from "./inference/file-references.ts";
import { withItemReferences } from "./inference/item-references.ts";
import { newLargePool } from "./inference/large/large-body.ts";
import { createServe } from "./inference/serve.ts";
import { Shutdown } from "./lib/shutdown.ts";
import { newId } from "./lib/ids.ts";
import { inBackground } from "./lib/in-background.ts";
import { parseSealKeys, sealing, type SealKey } from "./lib/seal.ts";
import { memoryLimit } from "./lib/memory-limit.ts";
import { Recurring } from "./lib/recurring.ts";
import { poolStepsBack } from "./lib/step-back.ts";
import { handleSignals } from "./lib/signals.ts";
import { NotificationSender } from "./notifications/sender.ts";
import { openStores } from "./open-stores.ts";
import { RequestRecorder } from "./requests/recorder.ts";
import { CLOCK_REFRESH_MS } from "./store/postgres-clock.ts";
import { checkPostgres, checkRedis } from "./store/ready.ts";
import { metrics, showOrganizations } from "./telemetry/metrics.ts";
import { createLogger, endLog } from "./telemetry/log.ts";
import { startTelemetry } from "./telemetry/start.ts";
import { redisToolCache } from "./tools/cache.ts";
import { redisCallLimit, type AdmitToolCall } from "./tools/call-limit.ts";
import { createToolbox } from "./tools/toolbox.ts";
import { ownAddresses, ownPlaces } from "./tools/url-guard/own-addresses.ts";
import { dnsResolver, resolverAsSystem } from "./tools/url-guard/resolver.ts";
import { ExtractionPool } from "./tools/web-fetch/extract/pool.ts";
import { RobotsCache } from "./tools/web-fetch/robots-cache.ts";
import { Upstreams } from "./upstream/upstreams.ts";
import { countUpstream } from "./upstream/count-tokens.ts";
import { newUpstreamDispatcher } from "./upstream/dispatcher.ts";

/** Where dataplane/console/build.ts leaves it. */
const CONSOLE_FOLDER = resolve(import.meta.dirname, "../dist/console");
/** How often it is looked which issuers' keys are to be read anew. */
const ISSUERS_LOOK_MS = 2_000;
/** How often the balances of organizations are read for their metrics. */
const BALANCES_MS = 15_000;
/** How often expired and abandoned files are looked for. */
const FILES_SWEEP_MS = 60_000;
/** What an organization may keep that has left the snapshot, while its last batches end. */
const DEFAULT_STORAGE = { maxBytes: 10 * 2 ** 30, maxFiles: 100_000 };

/** Serves until the first signal, and then ends the process. @throws Error when it cannot begin. */
export async function serveForever(environment: Environment): Promise<void> {
  // Most of what a request leaves is dead when it is collected: helper threads find little to copy, and spend up to
  // a sixth of the process' CPU on looking for it (docs/decisions/performance.md).
  setFlagsFromString("--no-parallel-scavenge");
  const log = createLogger(environment.LOG_LEVEL);
  dieOfSurprises(log);
  const { version } = manifest;
  metrics.buildInfo.set({ version, node: process.versions.node }, 1);
  const stopTelemetry = await startTelemetry(environment, version);
  // It answers from the beginning, so that a pod that waits for a store is not taken for dead, and says what it waits for.
  let phase: ProcessPhase = { waitsFor: "its stores" };
  const ops = createOpsServer(log, () => phase);
  await listen(ops, environment.OPS_PORT, environment.HOST);
  const stores = await openStores(environment, log, (what) => (phase = { waitsFor: what }));
  const { postgres, redis, reads, clock } = stores;
  phase = { waitsFor: "Redis" };
  const clockKeeper = new Recurring(log, "clock", CLOCK_REFRESH_MS, () => clock.refresh());
  clockKeeper.start();

  const loader = new SnapshotLoader(environment.GAPURA_CONFIG_DIR, log);
  await loader.start();
  // Its first file was read by the pool, which unpacks what clients send.
  poolStepsBack();
  const directory = new KeyDirectory({ pool: postgres, clock });
  const money = startMoney({
    ledger: stores.ledger,
    redis,
    pool: postgres,
    clock,
    log,
    newId,
    snapshot: () => loader.current,
    recheckKey: (keyId) => directory.recheck(keyId),
    limitsOf: (keyId, projectId) => directory.limitsOf(keyId, projectId),
  });
  const { holds } = money;
  const systemResolver = resolverAsSystem();
  const people = new TokenPeople({
    snapshot: () => loader.current,
    directory,
    fetchJson: guardedFetchJson(systemResolver),
    clock,
  });
  const issuers = new Recurring(log, "issuers", ISSUERS_LOOK_MS, () => people.refresh());
  issuers.start();
  const sync = new DirectorySync({ pool: postgres, clock, directory, holds, newId, log });
  sync.start();
  await money.begin();
  // A new pod must know its keys before it takes requests.
  phase = { waitsFor: "its organizations to be copied into Postgres" };
  if (loader.current !== null) await sync.copy(loader.current);
  loader.subscribe((snapshot) => inBackground(sync.copy(snapshot), log, "copying organizations"));
  const dispatcher = newUpstreamDispatcher();
  const cache = redisToolCache(stores.cacheRedis);
  const pages = new ExtractionPool();
  // Where no policy lets a model open pages, two processes that load a parser are memory for nothing.
  const warmPages = (snapshot: Snapshot | null) => {
    if (snapshot?.opensPages === true) pages.warm();
  };
  warmPages(loader.current);
  loader.subscribe(warmPages);
  const admit = redisCallLimit(redis);
  const keys = sealKeys(environment, log);
  const sealerOf = sealing(keys);
  const large = newLargePool(keys);
  large.warm();
  const limitsOf = (organizationId: string) =>
    loader.current?.organization(organizationId)?.storage ?? DEFAULT_STORAGE;
  const files = openFiles(environment.FILES_S3_URL, { postgres, clock, newId, limitsOf });
  const fresh = newUpstreamDispatcher({ keepAlive: false });
  const ownHere = ownPlaces({
    stores: [
      [environment.DATABASE_URL, 5432],
      [environment.DATABASE_READ_URL, 5432],
      [environment.REDIS_URL, 6379],
      [environment.REDIS_CACHE_URL, 6379],
      [environment.FILES_S3_URL, 443],
    ],
    more: environment.OWN_HOSTS,
    apiServer: environment.KUBERNETES_SERVICE_HOST,
  });
  const own = ownAddresses(ownHere);
  const sender = new NotificationSender({
    pool: postgres,
    clock,
    log,
    snapshot: () => loader.current,
    random: Math.random,
    resolver: dnsResolver(),
    insideResolver: systemResolver,
    own,
  });
  sender.start();
  const upstreams = new Upstreams(dispatcher, { fresh });
  loader.subscribe(({ routing }) => upstreams.health.serve(routing.routes));
  const memory = memoryLimit(readText, totalmem());
  const pressure = new Pressure(processProbe(memory));
  pressure.start();
  const heap = getHeapStatistics().heap_size_limit;
  const bodies = openBodyBudget(environment.BODY_BUDGET ?? usualBodyBudget(memory, heap));
  log.info({ memory, heap, bodies: bodies.total }, "bytes that bodies may take");
  const serveWith = (admitToolCall: AdmitToolCall) => {
    const runTool = createToolbox({
      admit: admitToolCall,
      bodies,
      fetch: { resolver: dnsResolver(), pool: pages, cache, robots: new RobotsCache(), clock, own },
      search: { dispatcher, cache },
      posts: { dispatcher, clock },
    });
    const serveOpened = createServe(upstreams, sealerOf, runTool, large);
    return withFileReferences(withItemReferences(serveOpened, cache), files, large);
  };
  const serve = serveWith(admit);
  const sweeper = new Recurring(log, "files", FILES_SWEEP_MS, () => files.sweep());
  sweeper.start();
  const balances = environment.METRICS_ORGANIZATIONS ? showBalances(postgres, loader, log) : null;
  const apiKeys = new Keys({ pool: postgres, directory, holds, reads, newId, newKey: newInferenceKey });
  const live = new LiveRequests(loopProbe());
  const requestRetentionMs = environment.RETENTION_REQUESTS;
  const records = new RequestRecorder({ pool: postgres, clock, log, retentionMs: requestRetentionMs });
  records.start();
  const usageRetention =
    environment.RETENTION_USAGE === undefined
      ? null
      : new UsageRetention({
          pool: postgres,
          clock,
          log,
          retentionMs: environment.RETENTION_USAGE,
          dropRows: environment.RETENTION_DROP,
        });
  usageRetention?.start();
  const snapshot = () => {
    if (loader.current !== null) return loader.current;
    throw noSnapshot();
  };
  const toolRoom = new ToolRoom({ admit });
  const batches = openBatches({
    pool: postgres,
    redis,
    files,
    bodies,
    clock,
    newId,
    large,
    log,
    holds,
    serve: serveWith(toolRoom.admit),
    toolRoom,
    snapshot,
    limitsOf: (keyId, projectId) => directory.limitsOf(keyId, projectId),
    random: Math.random,
    records,
    // Requests that somebody waits for come first.
    busy: () => loader.current === null || pressure.overloaded,
    liveLoad: () => live.load(),
  });
  let publicUrl = environment.PUBLIC_URL?.replace(/\/+$/, "") ?? "";
  let draining = false;
  const shutdown = new Shutdown();
  const consoleFiles = environment.CONSOLE ? await readConsole(CONSOLE_FOLDER) : undefined;
  const server = createServer(
    {
      log,
      clock,
      newId,
      directory,
      people,
      unknownCallers: new UnknownCallers(),
      bodies,
      records,
      shutdown,
      preflight: holds.preflight,
      shed: () => {
        pressure.shed();
        live.arrived();
      },
      snapshot,
    },
    apiRoutes({
      pool: postgres,
      reads,
      holds,
      keys: apiKeys,
      files,
      context: batches.context,
      serve,
      countUpstream: countUpstream(dispatcher),
      upstreams,
      large,
      sealerOf,
      publicUrl: () => publicUrl,
      requestRetentionMs,
      acknowledged: (objects) => sync.acknowledged(objects),
      ...(consoleFiles === undefined ? {} : { consoleFiles }),
    }),
  );
  const needs: OpsNeeds = {
    podUid: environment.POD_UID,
    loader,
    checks: [
      { name: "postgres", run: () => checkPostgres(postgres) },
      { name: "redis", run: () => checkRedis(redis) },
      { name: "ledger", run: async () => money.upkeep.fault },
    ],
    draining: () => draining,
    acknowledged: () => sync.acknowledged(loader.current?.routing.objects ?? []),
    owned: () => sync.owned(loader.current?.index.serial),
  };
  // From here on somebody may be waiting for an answer.
  const signalled = firstSignal(log);
  const address = await server.app.listen({ port: environment.PORT, host: environment.HOST });
  publicUrl ||= address;
  for (const listener of [ops, server.app.server])
    ownHere.push({ host: environment.HOST, port: (listener.address() as AddressInfo).port });
  await batches.worker.start();
  phase = needs;
  log.info({ address, ops: (ops.address() as AddressInfo).port }, "serving");

  await signalled;
  draining = true;
  const drainMs = environment.DRAIN_TIMEOUT * 1000;
  await endServing({
    log,
    drain: async () => (await Promise.all([drain(server, drainMs, shutdown), batches.stop(drainMs)]))[0],
    holds,
    loader,
    helpers: [sweeper, clockKeeper, sender, issuers, balances, usageRetention, stores].filter(
      (helper) => helper !== null,
    ),
    dispatchers: [dispatcher, fresh],
    pools: [pages, large],
    records,
    sync,
    money,
    stores,
    stopTelemetry,
  });
  ops.closeAllConnections();
  ops.close();
  await endLog(log);
  process.exit(0);
}

/** Prometheus is told of each organization that is served (rule 14.6). */
function showBalances(pool: DatabasePool, loader: SnapshotLoader, log: Logger): Recurring {
  const shown = showOrganizations((id) => {
    const source = loader.current?.organization(id)?.source;
    return source === undefined ? undefined : `${source.namespace}/${source.name}`;
  });
  const recurring = new Recurring(log, "balances of organizations", BALANCES_MS, async () =>
    shown.balances(await readBalances(pool)),
  );
  recurring.start();
  return recurring;
}

/** Without keys a pod makes its own: what it seals opens nowhere else and not after a restart. */
function sealKeys({ GAPURA_SEAL_KEYS }: Environment, log: Logger): readonly SealKey[] {
  if (GAPURA_SEAL_KEYS !== undefined) return parseSealKeys(GAPURA_SEAL_KEYS);
  log.warn("GAPURA_SEAL_KEYS is not set: what is sealed now opens only until this process ends");
  return [{ id: "ephemeral", key: randomBytes(32) }];
}

/** Files go to S3-compatible storage when it is configured, else to Postgres, where older files may still be. */
function openFiles(
  s3Url: string | undefined,
  options: Omit<FileStoreOptions, "contents" | "others">,
): FileStore {
  const rows = new PostgresContents(options.postgres);
  const places =
    s3Url === undefined ? { contents: rows } : { contents: new S3Contents(s3Url), others: [rows] };
  return new FileStore({ ...options, ...places });
}

function readText(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return null;
  }
}

function listen(server: Server, port: number, host: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once("error", reject);
  server.listen(port, host, resolve);
  return promise;
}

/** Resolves at the first SIGTERM or SIGINT; further ones change nothing, the drain is under way. */
function firstSignal(log: Logger): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  handleSignals((signal) => {
    log.info({ signal }, "draining");
    resolve();
  });
  return promise;
}

/** What nobody caught leaves this process in an unknown state: it says so and makes room for a new one. */
function dieOfSurprises(log: Logger): void {
  const die = (error: unknown) => {
    log.fatal({ err: error }, "unexpected error");
    process.exit(1);
  };
  process.on("uncaughtException", die);
  process.on("unhandledRejection", die);
}
