/**
 * A data plane from its start to its end: wiring only, in the order that matters.
 *   open-stores.ts       Postgres, Redis, and Postgres' clock
 *   config/load.ts       the snapshot that is served
 *   start-accounts.ts    keys, people and money; what a snapshot declares of them, copied into Postgres
 *   open-serving.ts      what requests and batches are served with: upstreams, server tools, files, seals, threads
 *   background-work.ts   notifications, and what is swept, shown and closed from time to time
 *   batches/start.ts     batches and their worker
 *   http/server.ts       the port of clients, with the routes of http/api-routes.ts
 *   http/ops-server.ts   the port of the kubelet, the operator and Prometheus
 *   end-serving.ts       the end
 */
import type { AddressInfo } from "node:net";
import { readFileSync } from "node:fs";
import type { Server } from "node:http";
import { totalmem } from "node:os";
import { resolve } from "node:path";
import { getHeapStatistics, setFlagsFromString } from "node:v8";
import type { Logger } from "pino";
import manifest from "../package.json" with { type: "json" };
import { startBackgroundWork } from "./background-work.ts";
import { openBatches } from "./batches/start.ts";
import { ToolRoom } from "./batches/worker/tool-room.ts";
import { SnapshotLoader } from "./config/load.ts";
import { noSnapshot } from "./config/no-snapshot.ts";
import { endServing } from "./end-serving.ts";
import type { Environment } from "./environment.ts";
import { openBodyBudget, usualBodyBudget } from "./http/body-budget.ts";
import { apiRoutes } from "./http/api-routes.ts";
import { readConsole } from "./http/console.ts";
import { drain } from "./http/drain.ts";
import { LiveRequests, loopProbe } from "./http/live-load.ts";
import { createOpsServer, type ProcessPhase } from "./http/ops-server.ts";
import { Pressure, processProbe } from "./http/pressure.ts";
import { ownUrl } from "./http/own-url.ts";
import { createServer } from "./http/server.ts";
import { UnknownCallers } from "./http/unknown-callers.ts";
import type { ByteBudget } from "./lib/byte-budget.ts";
import { newId } from "./lib/ids.ts";
import { memoryLimit } from "./lib/memory-limit.ts";
import { Shutdown } from "./lib/shutdown.ts";
import { handleSignals } from "./lib/signals.ts";
import { poolStepsBack } from "./lib/step-back.ts";
import { openServing } from "./open-serving.ts";
import { openStores } from "./open-stores.ts";
import { RequestRecorder } from "./requests/recorder.ts";
import { startAccounts } from "./start-accounts.ts";
import { checkPostgres, checkRedis } from "./store/ready.ts";
import { createLogger, endLog } from "./telemetry/log.ts";
import { metrics } from "./telemetry/metrics.ts";
import { startTelemetry } from "./telemetry/start.ts";
import { resolverAsSystem } from "./tools/url-guard/resolver.ts";

/** Where dataplane/console/build.ts leaves it. */
const CONSOLE_FOLDER = resolve(import.meta.dirname, "../dist/console");

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
  // The ops port answers from the beginning, so that a pod that waits for a store is not taken for dead, and reports what
  // it waits for.
  let phase: ProcessPhase = { waitsFor: "its stores" };
  const waitsFor = (what: string) => {
    phase = { waitsFor: what };
  };
  const ops = createOpsServer(log, () => phase);
  await listen(ops, environment.OPS_PORT, environment.HOST);

  // The base, in this order: stores, configuration, who may ask and what they may spend.
  const stores = await openStores(environment, log, waitsFor);
  const { postgres, redis, reads, clock } = stores;
  waitsFor("its first configuration to be read");
  const loader = new SnapshotLoader(environment.GAPURA_CONFIG_DIR, log);
  await loader.start();
  // Node's pool, which also decompresses bodies, has threads since the first file was read.
  poolStepsBack();
  const resolver = resolverAsSystem();
  const accounts = await startAccounts({ log, stores, loader, resolver, waitsFor });
  const { directory, people, sync, money } = accounts;
  const { holds } = money;

  // What every request and every item of a batch goes through.
  const load = watchLoad(environment, log);
  const { bodies } = load;
  const serving = openServing({ environment, log, stores, loader, bodies });
  const { upstreams, files, sealerOf, large } = serving;
  const snapshot = () => {
    if (loader.current !== null) return loader.current;
    throw noSnapshot();
  };
  const requestRetentionMs = environment.RETENTION_REQUESTS;
  const records = new RequestRecorder({ pool: postgres, clock, log, retentionMs: requestRetentionMs });
  records.start();

  const background = startBackgroundWork({
    environment,
    log,
    stores,
    loader,
    serving,
    insideResolver: resolver,
  });
  const toolRoom = new ToolRoom({ admit: serving.admitToolCall });
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
    serve: serving.serveWith(toolRoom.admit),
    toolRoom,
    snapshot,
    limitsOf: (keyId, projectId) => directory.limitsOf(keyId, projectId),
    random: Math.random,
    records,
    // Requests that somebody waits for come first.
    busy: () => loader.current === null || load.isOverloaded(),
    liveLoad: load.liveLoad,
  });

  // The port of clients.
  let publicUrl = environment.PUBLIC_URL?.replace(/\/+$/, "") ?? "";
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
      shed: load.shed,
      snapshot,
    },
    apiRoutes({
      pool: postgres,
      reads,
      holds,
      keys: accounts.keys,
      directory,
      files,
      context: batches.context,
      serve: serving.serveWith(serving.admitToolCall),
      countUpstream: serving.countUpstream,
      upstreams,
      large,
      sealerOf,
      publicUrl: () => publicUrl,
      requestRetentionMs,
      acknowledged: (objects) => sync.acknowledged(objects),
      ...(consoleFiles === undefined ? {} : { consoleFiles }),
    }),
  );
  // From here on a client may wait for an answer: a signal begins the drain.
  const { signalled, hurry } = endSignals(log);
  const address = await server.app.listen({ port: environment.PORT, host: environment.HOST });
  publicUrl ||= ownUrl(address);
  for (const listener of [ops, server.app.server])
    serving.ownPlaces.push({ host: environment.HOST, port: (listener.address() as AddressInfo).port });
  await batches.worker.start();
  let draining = false;
  phase = {
    podUid: environment.POD_UID,
    loader,
    checks: [
      { name: "postgres", run: () => checkPostgres(postgres) },
      { name: "redis", run: () => checkRedis(redis) },
      { name: "ledger", run: async () => money.upkeep.fault },
    ],
    draining: () => draining,
    acknowledged: () => sync.acknowledged(loader.current?.routing.objects ?? []),
    refused: () => sync.refused(loader.current?.routing.objects ?? []),
    owned: () => sync.owned(loader.current?.index.serial),
  };
  log.info({ address, ops: (ops.address() as AddressInfo).port }, "serving");

  await signalled;
  draining = true;
  const drainMs = environment.DRAIN_TIMEOUT * 1000;
  await endServing({
    log,
    drain: async () => {
      const ends = [drain(server, drainMs, shutdown, hurry), batches.stop(drainMs, hurry)];
      return !(await Promise.all(ends)).includes(false);
    },
    holds,
    loader,
    helpers: [...background.helpers, accounts.issuers, stores],
    dispatchers: serving.dispatchers,
    pools: serving.pools,
    records,
    sender: background.sender,
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

interface LoadWatch {
  /** The budget of bytes that bodies may take. */
  readonly bodies: ByteBudget;
  /** Called for each live request; refuses it while the process is overloaded. @throws ApiError 503 */
  readonly shed: () => void;
  readonly isOverloaded: () => boolean;
  /** The load to which batches give way. */
  readonly liveLoad: LiveRequests["load"];
}

/** Measures the memory and the load of this process. */
function watchLoad(environment: Environment, log: Logger): LoadWatch {
  const memory = memoryLimit(readText, totalmem());
  const heap = getHeapStatistics().heap_size_limit;
  const bodies = openBodyBudget(environment.BODY_BUDGET ?? usualBodyBudget(memory, heap));
  log.info({ memory, heap, bodies: bodies.total }, "bytes that bodies may take");
  const pressure = new Pressure(processProbe(memory));
  pressure.start();
  const live = new LiveRequests(loopProbe());
  return {
    bodies,
    shed: () => {
      pressure.shed();
      live.arrived();
    },
    isOverloaded: () => pressure.overloaded,
    liveLoad: () => live.load(),
  };
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

/**
 * `signalled` resolves at the first signal; a further SIGTERM or SIGINT changes nothing, the drain is under way. SIGHUP, first or
 * later, says that nobody waits for the drain, and aborts `hurry`.
 */
function endSignals(log: Logger): { readonly signalled: Promise<void>; readonly hurry: AbortSignal } {
  const { promise, resolve } = Promise.withResolvers<void>();
  const hurry = new AbortController();
  handleSignals((signal) => {
    log.info({ signal }, "draining");
    resolve();
    if (signal === "SIGHUP") hurry.abort();
  });
  return { signalled: promise, hurry: hurry.signal };
}

/** Ends the process at an error that nobody caught: its state is unknown, so it logs the error and lets a new process start. */
function dieOfSurprises(log: Logger): void {
  const die = (error: unknown) => {
    log.fatal({ err: error }, "unexpected error");
    process.exit(1);
  };
  process.on("uncaughtException", die);
  process.on("unhandledRejection", die);
}
