/** The folder in which `npm start` keeps its data. */
import { randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { join } from "node:path";
import { makeFolder } from "../operator/folder/files.ts";

/** Least free space: a new Postgres takes 60 MiB, its log and Redis' file grow, and with less the first traffic fills the disk. */
const NEEDED_BYTES = 300 * 1024 * 1024;
/** A log that has grown beyond this is set aside at the next start. */
const MAX_LOG_BYTES = 50 * 1024 * 1024;

/**
 * Makes the folder, before anything starts. null: it can be used; else one sentence that says what is wrong.
 * `free`: bytes that may still be written there.
 */
export function dataFolderFault(folder: string, free: (folder: string) => number = freeBytes): string | null {
  const probe = join(folder, `.probe-${process.pid}`);
  try {
    makeFolder(folder);
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

function freeBytes(folder: string): number {
  const { bavail, bsize } = fs.statfsSync(folder);
  return bavail * bsize;
}

/** Returns the folder's seal keys, made once: what was sealed with them must open again after a restart. */
export function sealKeys(folder: string): string {
  const file = join(folder, "seal-keys");
  if (!fs.existsSync(file)) {
    fs.writeFileSync(file, `k1:${randomBytes(32).toString("base64")}\n`, { mode: 0o600, flag: "wx" });
  }
  return fs.readFileSync(file, "utf8").trim();
}

/** Returns the path of a log; an earlier one that is too long is set aside. */
export function logFile(folder: string, name: string): string {
  const file = join(folder, name);
  if (fs.existsSync(file) && fs.statSync(file).size > MAX_LOG_BYTES) fs.renameSync(file, `${file}.1`);
  return file;
}
