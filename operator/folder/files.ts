/** Files of a folder: finding manifests, and writing so that a reader never sees half a file. */
import { randomUUID } from "node:crypto";
import { existsSync, lstatSync, mkdirSync, readdirSync, realpathSync, statSync } from "node:fs";
import { rename, rm, writeFile } from "node:fs/promises";
import { dirname, extname, join } from "node:path";

/** More than any folder of manifests needs; a folder beyond is a mistake, such as `/`. */
const MAX_FILES = 50_000;
const MAX_DEPTH = 32;
export const MAX_FILE_BYTES = 64 * 1024 * 1024;

export interface FoundFile {
  /** Relative to the working directory or absolute, as the folder was named. */
  readonly path: string;
  /** A text that changes when the content may have changed. */
  readonly signature: string;
  readonly size: number;
  /** Why this file or folder cannot be looked at: an errno or a clause; null: it can. */
  readonly fault: string | null;
}

export interface FindOptions {
  /** Called with each folder before it is listed. */
  readonly enter?: (folder: string) => void;
  /** A folder that is left out where it lies below the root: that of our own data, which changes all the time. */
  readonly except?: string;
}

/**
 * Finds every .yaml, .yml and .json below a folder, sorted. Hidden names (editors' swap files, `..data`) are left out,
 * and so is kustomize's own file, which declares nothing and needs no kind.
 * Synchronous: 10,000 files take 50 ms this way and a second of CPU with a promise for each, and nobody else waits in this
 * process.
 * @throws when the folder itself cannot be listed.
 */
export function findManifests(root: string, { enter = () => {}, except }: FindOptions = {}): FoundFile[] {
  const found: FoundFile[] = [];
  const info = statSync(root);
  if (info.isFile()) return [{ path: root, signature: signatureOf(info), size: info.size, fault: null }];
  const isThere = except !== undefined && existsSync(except);
  walk(root, { found, enter, except: isThere ? realpathSync(except) : null }, new Set());
  return found.sort((one, other) => (one.path < other.path ? -1 : 1));
}

interface Walk {
  readonly found: FoundFile[];
  readonly enter: (folder: string) => void;
  /** The real path of the folder that is left out; null: none is. */
  readonly except: string | null;
}

function walk(folder: string, into: Walk, above: ReadonlySet<string>): void {
  const real = realpathSync(folder);
  // Following a link to a folder above would never end.
  if (above.has(real) || above.size > MAX_DEPTH) return;
  if (real === into.except && above.size > 0) return;
  const inside = new Set([...above, real]);
  into.enter(folder);
  for (const name of readdirSync(folder)) {
    if (name.startsWith(".") || name.endsWith("~") || KUSTOMIZATION.test(name)) continue;
    const path = join(folder, name);
    const noteFault = (fault: string) => {
      // A file of another ending would not be read; a name without one may be a folder.
      if (MANIFEST.test(name) || extname(name) === "")
        into.found.push({ path, signature: fault, size: 0, fault });
    };
    try {
      const info = statSync(path, { throwIfNoEntry: false });
      if (info?.isDirectory()) walk(path, into, inside);
      else if (info?.isFile() && MANIFEST.test(name))
        into.found.push({ path, signature: signatureOf(info), size: info.size, fault: null });
      // A file that vanishes after the listing is ignored; a link without its target is a fault.
      else if (info === undefined && lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true)
        noteFault(DANGLING);
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code ?? "";
      if (!UNSEEN.has(code)) throw error;
      noteFault(code);
    }
    if (into.found.length > MAX_FILES) throw new Error(`more than ${MAX_FILES} manifests under the folder`);
  }
}

const KUSTOMIZATION = /^kustomization\.ya?ml$/;
const MANIFEST = /\.(ya?ml|json)$/i;

/** Why a symbolic link without a target cannot be read. */
export const DANGLING = "it is a link to what is not there";

/** Errors that are about one file or folder and stay until somebody mends it. */
const UNSEEN: ReadonlySet<string> = new Set(["EACCES", "EPERM", "ELOOP"]);

const signatureOf = (info: { ino: number; size: number; mtimeMs: number; ctimeMs: number }) =>
  `${info.ino} ${info.size} ${info.mtimeMs} ${info.ctimeMs}`;

/** Prefix of files that are being written. A generated key's file is named as a key of a Secret: none begins with two dots. */
export const DRAFT_PREFIX = "..draft-";

/** Makes a folder for us alone, and those above it, one by one: where the last one cannot be made (/proc), Node's recursive `mkdir` never ends. */
export function makeFolder(folder: string): void {
  if (existsSync(folder)) return;
  makeFolder(dirname(folder));
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    // Another process may have made it meanwhile.
    if (!existsSync(folder)) throw error;
  }
}

/** Writes a draft in the target's folder and renames it over the target. */
export async function writeAtomically(
  path: string,
  content: string | Uint8Array,
  mode: number,
): Promise<void> {
  makeFolder(dirname(path));
  const draft = join(dirname(path), `${DRAFT_PREFIX}${randomUUID()}`);
  try {
    await writeFile(draft, content, { mode, flag: "wx" });
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}
