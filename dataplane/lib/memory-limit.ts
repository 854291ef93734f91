/** The memory limit of this process: that of its control groups, or else the machine's memory. */

/** The text of a file; null when there is none. */
export type ReadText = (path: string) => string | null;

const ROOT = "/sys/fs/cgroup";

/**
 * The least limit, in bytes, of the process' control group, its parents (cgroup v2 and v1) and `systemBytes`. In a container
 * the group's path may not exist in the mounted view; then its files are at the root.
 */
export function memoryLimit(read: ReadText, systemBytes: number): number {
  const groups = (read("/proc/self/cgroup") ?? "").split("\n").map((line) => line.split(":"));
  const files: string[] = [];
  for (const [, controllers = "", ...path] of groups) {
    const folders = upwards(path.join(":"));
    if (controllers === "") files.push(...folders.map((folder) => `${ROOT}${folder}/memory.max`));
    if (controllers.split(",").includes("memory"))
      files.push(...folders.map((folder) => `${ROOT}/memory${folder}/memory.limit_in_bytes`));
  }
  files.push(`${ROOT}/memory.max`, `${ROOT}/memory/memory.limit_in_bytes`);
  // `max`, or in v1 a number beyond all memory: no limit.
  const limits = files.map((file) => Number.parseInt(read(file) ?? "", 10)).filter((limit) => limit > 0);
  return Math.min(systemBytes, ...limits);
}

/** `/a/b` is within `/a`, which is within the root: all three limit it. */
function upwards(path: string): string[] {
  const parts = path.split("/").filter((part) => part !== "" && part !== "..");
  return parts.map((_, index) => `/${parts.slice(0, parts.length - index).join("/")}`).concat("");
}
