/** What Linux tells about processes: their CPU time and memory, read from /proc. */
import { readdirSync, readFileSync } from "node:fs";

/** Linux reports times in hundredths of a second, whatever its own tick is. */
const MICROS_PER_TICK = 10_000;

export interface ProcessStat {
  readonly parent: number;
  /** utime + stime: time on a core in microseconds, all threads together, in steps of 10 ms. */
  readonly cpuMicros: number;
}

/** Reads /proc/PID/stat. The second field is the program's name and may hold spaces and parentheses. */
export function parseStat(text: string): ProcessStat {
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return {
    parent: Number(fields[1]),
    cpuMicros: (Number(fields[11]) + Number(fields[12])) * MICROS_PER_TICK,
  };
}

/** VmRSS of /proc/PID/status in bytes; 0 when it is not there. */
export function parseRss(text: string): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(text)?.[1] ?? 0) * 1024;
}

/** CPU time of a process and all that live below it, in microseconds. */
export function treeCpuMicros(root: number): number {
  return sumOfTree(root, (pid) => parseStat(readFileSync(`/proc/${pid}/stat`, "utf8")).cpuMicros);
}

/** Resident memory of a process and all that live below it, in bytes; shared pages count for each. */
export function treeRssBytes(root: number): number {
  return sumOfTree(root, (pid) => parseRss(readFileSync(`/proc/${pid}/status`, "utf8")));
}

function sumOfTree(root: number, measure: (pid: number) => number): number {
  let sum = 0;
  for (const pid of [root, ...descendants(root)]) {
    try {
      sum += measure(pid);
    } catch {
      // It ended meanwhile.
    }
  }
  return sum;
}

function descendants(root: number): number[] {
  const children = new Map<number, number[]>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const { parent } = parseStat(readFileSync(`/proc/${name}/stat`, "utf8"));
      children.set(parent, [...(children.get(parent) ?? []), Number(name)]);
    } catch {
      // It ended meanwhile.
    }
  }
  const found: number[] = [];
  const open = [root];
  for (let pid = open.pop(); pid !== undefined; pid = open.pop()) {
    const below = children.get(pid) ?? [];
    found.push(...below);
    open.push(...below);
  }
  return found;
}
