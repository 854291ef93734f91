/** Where unpacked programs (Postgres, Redis) are kept between runs. */
import * as fs from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";

/** Reports to the person at the terminal what takes long. */
export type Say = (line: string) => void;

/**
 * `$XDG_CACHE_HOME/gapura` (default `~/.cache/gapura`). Root runs Postgres as another user, who must be able to
 * read it: when a folder above is closed to others (a 0700 home), root uses `/var/cache/gapura` instead.
 */
export async function cacheFolder(): Promise<string> {
  const configured = process.env["XDG_CACHE_HOME"];
  let folder = join(
    configured !== undefined && configured.startsWith("/") ? configured : join(homedir(), ".cache"),
    "gapura",
  );
  await fs.mkdir(folder, { recursive: true, mode: 0o755 });
  if (process.geteuid?.() === 0 && !(await openToOthers(folder))) {
    folder = "/var/cache/gapura";
    await fs.mkdir(folder, { recursive: true, mode: 0o755 });
    await fs.chmod(folder, 0o755);
  }
  return folder;
}

/** True when every folder down to this one may be walked through by anybody. */
async function openToOthers(folder: string): Promise<boolean> {
  for (let path = await fs.realpath(folder); ; path = dirname(path)) {
    if (((await fs.stat(path)).mode & 0o001) === 0) return false;
    if (path === dirname(path)) return true;
  }
}
