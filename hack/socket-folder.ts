/**
 * Where a store of `npm start` listens: on a socket that only its owner reaches, and on no port. Postgres trusts whoever gets
 * to it, so the folder's mode is the lock (rule 7.16).
 */
import { createHash } from "node:crypto";
import * as fs from "node:fs/promises";
import { platform, tmpdir } from "node:os";
import { join } from "node:path";

/** `sun_path` holds 108 bytes on Linux and 104 elsewhere, the last one a NUL. */
const MAX_SOCKET_PATH = platform() === "linux" ? 107 : 103;

/**
 * The store's own folder, or, where the path of a socket in it would be too long, a folder beside the system's temporary files:
 * always the same for one store, so that neither a second start nor a killed one leaves another behind.
 * @param owner who runs the store, and owns the folder.
 * @throws Error when somebody else has made that folder.
 */
export async function socketFolder(store: string, socket: string, owner: Owner): Promise<string> {
  if (fits(join(store, socket))) {
    await fs.chmod(store, 0o700);
    return store;
  }
  const name = createHash("sha256").update(store).digest("hex").slice(0, 16);
  const folder = join(tmpdir(), `gapura-${name}`);
  if (!fits(join(folder, socket))) throw new Error(`${folder} is too long a path for a socket: set TMPDIR`);
  await fs.mkdir(folder, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EEXIST") throw error;
  });
  // Made by us just now, or by a start that was killed here.
  if ((await fs.lstat(folder)).uid === process.geteuid?.()) await fs.lchown(folder, owner.uid, owner.gid);
  // Everybody may make a folder there: in one that is not ours somebody else's server could listen.
  const { uid, mode } = await fs.lstat(folder);
  if (uid !== owner.uid || (mode & 0o170777) !== 0o040700) {
    throw new Error(`${folder} belongs to somebody else: remove it, or choose a shorter folder with --data`);
  }
  return folder;
}

/** The user that runs a store. */
export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

export const ourselves = (): Owner => ({ uid: process.geteuid?.() ?? 0, gid: process.getegid?.() ?? 0 });

const fits = (path: string) => Buffer.byteLength(path) <= MAX_SOCKET_PATH;
