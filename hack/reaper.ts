/**
 * Ends what a process of ours has started when it is killed and cannot: `npm start`, a run of tests, a worker of it. A small
 * shell holds one end of a pipe, and acts when the other end goes away, by whatever signal. It lives in a session of its own, so
 * that a signal to our group misses it.
 */
import { spawn, type ChildProcess } from "node:child_process";
import type { Writable } from "node:stream";

/**
 * Reads lines of `SIGNAL:PID,SIGNAL:PID SIGNAL:PID`; at the end of input ends what the last one names: everything before the
 * blank at once, and when that has ended everything after it. Whatever takes longer than five seconds is killed. A zombie has
 * ended, as for `isRunning` (processes.ts).
 */
const SCRIPT = `
runs() {
  kill -0 "$1" 2>/dev/null || return
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
  case "\${stat##*) }" in Z*) return 1 ;; esac
}
end() {
  kill -s "\${1%%:*}" "\${1#*:}" 2>/dev/null || return
  kill -s CONT "\${1#*:}" 2>/dev/null
  tries=0
  while runs "\${1#*:}" && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
  kill -s KILL "\${1#*:}" 2>/dev/null
}
all=
while read -r line; do all=$line; done
for together in $all; do
  IFS=,
  for program in $together; do end "$program" & done
  wait
done
`;

/** What works on a store ends before the store. */
export type StartedKind = "program" | "store";

/** What is to be ended, as the shell has it. */
const watched: Readonly<Record<StartedKind, Map<ChildProcess, string>>> = {
  program: new Map(),
  store: new Map(),
};
/**
 * The pipe to it goes away with this process. It is there before any child: one that we started just before we are killed
 * would be left behind by a shell that has yet to start.
 */
const shell = startShell();

/** Has a child of ours end, asked by this signal, when we are gone before it. */
export function endWithUs(
  child: ChildProcess,
  stopSignal: NodeJS.Signals,
  kind: StartedKind = "program",
): void {
  if (child.pid === undefined) return;
  watched[kind].set(child, `${stopSignal.slice("SIG".length)}:${child.pid}`);
  child.once("exit", () => {
    // Its number may be somebody else's soon.
    watched[kind].delete(child);
    tell();
  });
  tell();
}

function tell(): void {
  const stages = [watched.program, watched.store].map((programs) => [...programs.values()].join(","));
  shell.write(`${stages.join(" ")}\n`);
}

function startShell(): Writable {
  const child = spawn("sh", ["-c", SCRIPT], { detached: true, stdio: ["pipe", "ignore", "ignore"] });
  child.on("error", () => {});
  child.stdin.on("error", () => {});
  child.unref();
  return child.stdin;
}
