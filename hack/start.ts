/**
 * `npm start`: the whole product on one machine (design.md §7). Stores, migrations, operator, data plane, and for
 * the demo manifests their upstream. What it starts it also ends: the data plane first, which drains, the stores
 * last.
 *
 *   npm start -- [--manifests DIR] [--port 8080] [--ops-port 9090] [--host 127.0.0.1] [--data DIR]
 *                [--no-console] [--tenancy Namespaced] [--platform-namespaces A,B] [--quota-objects N] [--quota-bytes N]
 *   DATABASE_URL, REDIS_URL, REDIS_CACHE_URL   use these stores instead of starting some
 */
import { spawn, type ChildProcess } from "node:child_process";
import * as fs from "node:fs";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { buildConsole } from "../dataplane/console/build.ts";
import { readDrainTimeout, readEnvironment } from "../dataplane/environment.ts";
import { becomesReady, servedConfiguration } from "./await-ready.ts";
import { startDemo, type Demo } from "./demo.ts";
import { howToCall, shown } from "./how-to-call.ts";
import { ALLOCATOR, NODE_FLAGS } from "./node-flags.ts";
import { choosePort } from "./free-port.ts";
import { lastWords } from "./last-words.ts";
import { startPostgres } from "./postgres.ts";
import { endWithUs } from "./reaper.ts";
import { startRedis } from "./redis.ts";
import { dataFolderFault, logFile, sealKeys } from "./data-folder.ts";
import { readOptions } from "./start-options.ts";
import { removeRun, takeOver, writeRun } from "./run-file.ts";
import { Supervisor } from "./supervise.ts";

const root = resolve(import.meta.dirname, "..");
const say = (line: string) => console.error(`gapura: ${line}`);

const DATA_PLANE = "dataplane/main.ts";
const OPERATOR = "operator/main.ts";
/** A second signal within this time is the same Ctrl-C, passed on by hack/ensure.mjs. */
const SAME_KEY_MS = 400;
/** After a second Ctrl-C: how long one program may take, the data plane for its last words, and all of them together. */
const HURRIED_STOP_MS = 2_000;
const LAST_WORDS_MS = 4_000;
const HURRIED_MS = 8_000;
/** Without a parent nobody waits for a drain. */
const ORPHAN_DRAIN_MS = 3_000;

const options = readOptions(process.argv.slice(2), say);
const drainMs = drainMsOrEnd();
const unusable = dataFolderFault(options.data);
if (unusable !== null) {
  say(unusable);
  process.exit(1);
}
/** The process that brings the database up to date; it may wait for a Postgres that is not ours. */
let migrating: ChildProcess | null = null;
/** The programs, in the order in which they are stopped. */
const programs: { dataPlane?: Supervisor; operator?: Supervisor; redis?: Supervisor; postgres?: Supervisor } =
  {};
let demo: Demo | null = null;
let stopping: Promise<void> | null = null;
/** Aborted when everything is ending: nothing more is to be started. */
const ending = new AbortController();
/** `performance.now()` of the first signal. */
let askedAt = 0;
/** Whether a second signal came: nothing is waited for any more. */
let hurried = false;
/** Whether the data folder was taken over: no other start runs on it. */
let ours = false;
const supervision = {
  say,
  onStart: remember,
  onGiveUp: (reason: string) => {
    say(`${reason}; ending everything`);
    void shutDown(1, 0);
  },
};

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => {
    // SIGHUP: the terminal, or npm above us, is gone, and nobody waits for a drain.
    if (stopping === null) {
      askedAt = performance.now();
      void shutDown(0, signal === "SIGHUP" ? ORPHAN_DRAIN_MS : drainMs);
    } else if (performance.now() - askedAt > SAME_KEY_MS) hurry();
  });
}
watchParent();
const starting = start().catch((error: unknown) => {
  if (stopping !== null) return;
  say(error instanceof Error ? error.message : String(error));
  void shutDown(1, 0);
});

async function start(): Promise<void> {
  await takeOver(options.data, say);
  ours = true;
  remember();
  const port = await choosePort("--port", options.port, options.host);
  const opsPort = await choosePort("--ops-port", options.opsPort, options.host);
  const [database, redis, hasConsole] = await Promise.all([openPostgres(), openRedis(), openConsole()]);
  // Where `npm run reconcile -- --data DIR` finds them.
  fs.writeFileSync(
    join(options.data, "stores.json"),
    JSON.stringify({ databaseUrl: database, redisUrl: redis }),
    { mode: 0o600 },
  );
  demo = await startDemo(options.manifests, options.data, say);
  const address = `http://${inUrl(options.host)}:${port}`;
  // A wildcard is not an address to call.
  const opsHost = { "0.0.0.0": "127.0.0.1", "::": "::1" }[options.host] ?? options.host;
  const opsAddress = `http://${inUrl(opsHost)}:${opsPort}`;
  const environment = {
    DATABASE_URL: database,
    REDIS_URL: redis,
    REDIS_CACHE_URL: process.env["REDIS_CACHE_URL"] || redis,
    GAPURA_CONFIG_DIR: join(options.data, "snapshot"),
    GAPURA_SEAL_KEYS: process.env["GAPURA_SEAL_KEYS"] || sealKeys(options.data),
    HOST: options.host,
    PORT: String(port),
    OPS_PORT: String(opsPort),
    PUBLIC_URL: process.env["PUBLIC_URL"] || address,
    POD_UID: "local",
    CONSOLE: String(hasConsole),
  };
  // What the data plane would refuse is reported now, not after it ended five times.
  readEnvironment({ ...process.env, ...environment });
  fs.mkdirSync(environment.GAPURA_CONFIG_DIR, { recursive: true, mode: 0o700 });

  await migrate(environment);
  const { manifests } = demo;
  programs.operator = supervise("the operator", OPERATOR, () =>
    run(OPERATOR, "inherit", {}, [
      `--manifests=${manifests}`,
      `--out=${environment.GAPURA_CONFIG_DIR}`,
      `--data=${options.data}`,
      `--ack=${opsAddress}/config/status`,
      ...options.tenancy,
    ]),
  );
  await launch(programs.operator);
  const log = logFile(options.data, "data-plane.log");
  say(`starting the data plane (its log: ${shown(log)})`);
  programs.dataPlane = supervise(
    "the data plane",
    DATA_PLANE,
    () => run(DATA_PLANE, fs.openSync(log, "a", 0o600), environment),
    log,
  );
  await launch(programs.dataPlane);
  await becomesReady(opsAddress, ending.signal).catch((error: unknown) => {
    throw new Error(`${(error as Error).message}; see ${shown(log)}`, { cause: error });
  });
  const served = await servedConfiguration(opsAddress, ending.signal);
  say(`health, metrics and configuration: ${opsAddress}`);
  console.log(`ready ${address}`);
  if (hasConsole) console.log(`console: ${address}/console/`);
  for (const line of howToCall(address, served, options.data, Date.now())) console.log(line);
}

/** Builds the console. @returns whether there is one; without it the rest of the product still starts. */
async function openConsole(): Promise<boolean> {
  if (!options.console) return false;
  try {
    await buildConsole(say);
    return true;
  } catch (error) {
    say(`there will be no console, as it could not be built: ${(error as Error).message}`);
    return false;
  }
}

function inUrl(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}

async function openPostgres(): Promise<string> {
  const given = process.env["DATABASE_URL"];
  if (given !== undefined && given !== "") return given;
  say("starting Postgres");
  let url = "";
  programs.postgres = new Supervisor({
    name: "Postgres",
    stopSignal: "SIGINT",
    start: async () => {
      const folder = join(options.data, "postgres");
      const server = await startPostgres({ folder, socket: true, durable: true, say });
      // A restarted server has the same address.
      url = server.url();
      return server.process;
    },
    ...supervision,
  });
  await launch(programs.postgres);
  return url;
}

async function openRedis(): Promise<string> {
  const given = process.env["REDIS_URL"];
  if (given !== undefined && given !== "") return given;
  say("starting Redis");
  let url = "";
  programs.redis = new Supervisor({
    name: "Redis",
    stopSignal: "SIGTERM",
    start: async () => {
      const server = await startRedis({
        folder: join(options.data, "redis"),
        socket: true,
        durable: true,
        say,
      });
      ({ url } = server);
      return server.process;
    },
    ...supervision,
  });
  await launch(programs.redis);
  return url;
}

async function migrate(environment: Readonly<Record<string, string>>): Promise<void> {
  say("bringing the database up to date");
  await going();
  const child = run(DATA_PLANE, "inherit", environment, ["migrate"]);
  migrating = child;
  const code = await new Promise<number | null>((done) => child.once("exit", done));
  if (code !== 0) throw new Error("the database could not be brought up to date");
}

/** Starts one of our programs in a group of its own, so that Ctrl-C reaches it through us, in order. */
function run(
  program: string,
  output: "inherit" | number,
  environment: Readonly<Record<string, string>>,
  args: readonly string[] = [],
): ChildProcess {
  const child = spawn(process.execPath, [...NODE_FLAGS, program, ...args], {
    cwd: root,
    env: { ...ALLOCATOR, ...process.env, ...environment },
    detached: true,
    // Programs print where our own progress goes; only the `ready` lines are our output.
    stdio: ["ignore", output === "inherit" ? 2 : output, output === "inherit" ? 2 : output],
  });
  endWithUs(child, "SIGTERM");
  child.on("error", (error) => say(`cannot run ${program}: ${error.message}`));
  if (typeof output === "number") fs.closeSync(output);
  return child;
}

/** @param log where the program writes, if not with us: its end is shown when the program cannot be kept running. */
function supervise(name: string, program: string, start: () => ChildProcess, log?: string): Supervisor {
  if (!fs.existsSync(join(root, program))) throw new Error(`${program} is missing`);
  const onGiveUp = (reason: string) => {
    if (log !== undefined) {
      say(`the end of ${shown(log)}:`);
      for (const line of lastWords(log)) console.error(line);
    }
    supervision.onGiveUp(reason);
  };
  return new Supervisor({ name, stopSignal: "SIGTERM", start, ...supervision, onGiveUp });
}

async function launch(program: Supervisor): Promise<void> {
  await going();
  await program.launch();
}

/** @throws when everything is ending */
async function going(): Promise<void> {
  await sleep(0);
  ending.signal.throwIfAborted();
}

/** Records what runs, for the next start. */
function remember(): void {
  const { dataPlane, operator } = programs;
  const ids = { [DATA_PLANE]: dataPlane?.pid, [OPERATOR]: operator?.pid };
  writeRun(options.data, {
    start: process.pid,
    programs: Object.fromEntries(
      Object.entries(ids).filter((entry): entry is [string, number] => typeof entry[1] === "number"),
    ),
  });
}

/** Ends everything when our parent (ensure.mjs under npm) is gone without a signal to us. */
function watchParent(): void {
  const parent = process.ppid;
  if (process.env["GAPURA_ENSURED"] === undefined) return;
  setInterval(() => {
    if (process.ppid === parent || stopping !== null) return;
    say("the parent process is gone; ending everything");
    void shutDown(1, ORPHAN_DRAIN_MS);
  }, 250).unref();
}

/** Ends the data plane first, so that running answers end and are charged, and the stores last. */
function shutDown(code: number, drainMs: number): Promise<void> {
  ending.abort();
  stopping ??= (async () => {
    if (programs.dataPlane !== undefined)
      say("stopping: waiting for running answers to end (Ctrl-C again: at once)");
    migrating?.kill("SIGTERM");
    // A step of the start that is under way finishes first, so that what it starts is known.
    await starting;
    const within = (ms: number) => (hurried ? HURRIED_STOP_MS : ms);
    // The data plane knows only its own drain time: SIGHUP makes it end running answers in an error, and charge them.
    const patience = setTimeout(() => programs.dataPlane?.tell("SIGHUP"), drainMs);
    await programs.dataPlane?.stop(within(drainMs + 10_000));
    clearTimeout(patience);
    await programs.operator?.stop(within(10_000));
    await demo?.close();
    await Promise.all([programs.redis?.stop(within(30_000)), programs.postgres?.stop(within(30_000))]);
    if (ours) removeRun(options.data);
    if (ours) say("stopped");
    process.exit(code);
  })();
  return stopping;
}

/** How long running answers may take to end, as the data plane reads it. Ends the process with 1 when that is no number. */
function drainMsOrEnd(): number {
  try {
    return readDrainTimeout(process.env) * 1000;
  } catch (error) {
    say(error instanceof Error ? error.message : String(error));
    process.exit(1);
  }
}

/** Makes running answers end in an error, then cuts; what was charged is settled at the next start, from Redis. */
function hurry(): void {
  if (hurried) return;
  hurried = true;
  say("cutting off what still runs");
  programs.dataPlane?.tell("SIGHUP");
  // The stores stay until nothing writes into them any more.
  void programs.dataPlane?.stop(LAST_WORDS_MS);
  void programs.operator?.stop(0);
  // A step of the start may hang (a download): what it has started ends with us.
  setTimeout(() => {
    if (ours) removeRun(options.data);
    process.exit(130);
  }, HURRIED_MS);
}
