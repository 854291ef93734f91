import { readdirSync, readFileSync } from "node:fs";

/** Command lines of this machine's processes that work on the folder. */
export function processesOn(path: string): string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        if (/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"))) return [];
        const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
        const environment = readFileSync(`/proc/${pid}/environ`, "utf8");
        const ours = command.includes(path) || environment.includes(`GAPURA_CONFIG_DIR=${path}`);
        return ours ? [command] : [];
      } catch {
        return [];
      }
    });
}
