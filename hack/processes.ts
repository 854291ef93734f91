/** Child processes: asking them to end, and whether they still run. */
import type { ChildProcess } from "node:child_process";
import { readdirSync, readFileSync, readlinkSync, realpathSync } from "node:fs";
import { platform } from "node:os";

/** Sends a signal and waits for the end; SIGKILL when it takes longer than `waitMs`. */
export async function stopProcess(
  child: ChildProcess,
  signal: NodeJS.Signals,
  waitMs: number,
): Promise<void> {
  if (hasEnded(child)) return;
  const ended = new Promise<void>((done) => child.once("exit", () => done()));
  const timer = setTimeout(() => child.kill("SIGKILL"), waitMs);
  child.kill(signal);
  // A process that is stopped (SIGSTOP, by a test) takes no other signal.
  child.kill("SIGCONT");
  await ended;
  clearTimeout(timer);
}

/** True also for a process that could never be started. */
export function hasEnded(child: ChildProcess): boolean {
  return child.pid === undefined || child.exitCode !== null || child.signalCode !== null;
}

/** False also for a zombie: the process has ended, though nobody has fetched its exit code yet. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    // No /proc (macOS), or it ended just now.
    return platform() !== "linux";
  }
}

/**
 * Ids of the processes whose working directory is this folder: a store and all its helpers. Empty without /proc.
 * @param program its name as the kernel has it; absent: any, also a shell that somebody has there.
 */
export function processesIn(folder: string, program?: string): number[] {
  if (platform() !== "linux") return [];
  const real = realpathSync(folder);
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        if (readlinkSync(`/proc/${pid}/cwd`) !== real || !isRunning(pid)) return false;
        return program === undefined || readFileSync(`/proc/${pid}/comm`, "utf8").trim() === program;
      } catch {
        return false;
      }
    });
}

/** Sends a signal to those processes that are still there. */
export function signalAll(pids: readonly number[], signal: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, signal);
    } catch {
      // It ended meanwhile.
    }
  }
}
