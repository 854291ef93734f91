/**
 * Ends our programs when `npm start` itself is killed and cannot: a small shell that holds one end of a pipe, and
 * acts when the other end goes away. It lives in a session of its own, so that a signal to our group misses it.
 */
import { spawn } from "node:child_process";

/** Reads lines of `SIGNAL:PID ...`; at the end of input sends the last line's signals in order, stores last. */
const SCRIPT = `
programs=
while read -r line; do programs=$line; done
for program in $programs; do
  pid=\${program#*:}
  kill -s "\${program%%:*}" "$pid" 2>/dev/null || continue
  tries=0
  while kill -0 "$pid" 2>/dev/null && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
  kill -s KILL "$pid" 2>/dev/null
done
`;

export interface Reaper {
  /** Sets what is to be ended, in order; empty: nothing. */
  watch(programs: readonly { readonly pid: number | null; readonly stopSignal: NodeJS.Signals }[]): void;
  /** Ends the reaper, after everything has ended in the ordinary way. */
  dismiss(): void;
}

export function startReaper(): Reaper {
  const shell = spawn("sh", ["-c", SCRIPT], { detached: true, stdio: ["pipe", "ignore", "ignore"] });
  shell.on("error", () => {});
  shell.stdin.on("error", () => {});
  shell.unref();
  const write = (line: string) => void shell.stdin.write(`${line}\n`);
  return {
    watch: (programs) =>
      write(
        programs
          .filter(({ pid }) => pid !== null)
          .map(({ pid, stopSignal }) => `${stopSignal.slice("SIG".length)}:${pid}`)
          .join(" "),
      ),
    dismiss: () => {
      write("");
      shell.stdin.end();
    },
  };
}
