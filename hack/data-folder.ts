/** Checks whether `npm start` can keep its data in a folder, before anything starts, so that one sentence says what is wrong. */
import * as fs from "node:fs";
import { dirname, join } from "node:path";

/** Least free space: a new Postgres takes 60 MiB, its log and Redis' file grow, and with less the first traffic fills the disk. */
const NEEDED_BYTES = 300 * 1024 * 1024;

/** Makes the folder. null: it can be used; else one sentence. `free`: bytes that may still be written there. */
export function dataFolderFault(folder: string, free: (folder: string) => number = freeBytes): string | null {
  const probe = join(folder, `.probe-${process.pid}`);
  try {
    makeFolders(folder);
    fs.writeFileSync(probe, "gapura", { mode: 0o600 });
    fs.rmSync(probe);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOSPC" || code === "EDQUOT")
      return `the disk of ${folder} is full (${code}): free some, or choose another folder with --data`;
    return `${folder} cannot be written (${code}): choose a folder of your own with --data`;
  }
  const left = free(folder);
  if (left >= NEEDED_BYTES) return null;
  const mebibytes = (bytes: number) => `${Math.floor(bytes / 1024 ** 2)} MiB`;
  return `only ${mebibytes(left)} are free on the disk of ${folder}, and ${mebibytes(NEEDED_BYTES)} are needed: free some, or choose another folder with --data`;
}

/** One by one: where the last one cannot be made (/proc), Node's recursive mkdir never ends. */
function makeFolders(folder: string): void {
  if (fs.existsSync(folder)) return;
  makeFolders(dirname(folder));
  fs.mkdirSync(folder, { mode: 0o700 });
}

function freeBytes(folder: string): number {
  const { bavail, bsize } = fs.statfsSync(folder);
  return bavail * bsize;
}
