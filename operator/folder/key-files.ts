/** Generated keys of the folder form: one file each, `secrets/<namespace>/<secret>/<key>` in the data folder. */
import { randomUUID } from "node:crypto";
import { link, lstat, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { newKey } from "../new-key.ts";
import type { WantedKey } from "../plan/objects.ts";
import { DANGLING, DRAFT_PREFIX, makeFolder } from "./files.ts";

const folderOf = (dataFolder: string): string => join(dataFolder, "secrets");

/** Returns the folder of generated keys, and makes it when it is not there. */
export async function openKeyFolder(dataFolder: string): Promise<string> {
  const folder = folderOf(dataFolder);
  makeFolder(folder);
  return folder;
}

/** Returns the path of the file with the value of a Secret's key. */
export const keyFile = (
  dataFolder: string,
  { namespace, secret, key }: Pick<WantedKey, "namespace" | "secret" | "key">,
): string => join(folderOf(dataFolder), namespace, secret, key);

export interface UnreadKeyFile {
  readonly file: string;
  readonly namespace: string;
  readonly secret: string;
  /** Why it cannot be read: an errno or a clause. */
  readonly code: string;
}

/**
 * Reads every generated key, by `namespace/secret`. One that cannot be read, such as a folder in a file's place, counts as
 * missing and is reported to `unread`: it holds up no other.
 */
export async function readKeyFiles(
  dataFolder: string,
  unread: (file: UnreadKeyFile) => void,
): Promise<Map<string, Record<string, string>>> {
  const root = folderOf(dataFolder);
  const found = new Map<string, Record<string, string>>();
  for (const namespace of await list(root))
    for (const secret of await list(join(root, namespace))) {
      const report = (file: string, code: string) => unread({ file, namespace, secret, code });
      found.set(`${namespace}/${secret}`, await readSecret(join(root, namespace, secret), report));
    }
  return found;
}

/** Reads the files of one Secret. `report` gets the path of what cannot be read, and why. */
async function readSecret(
  folder: string,
  report: (file: string, code: string) => void,
): Promise<Record<string, string>> {
  const values: Record<string, string> = {};
  const keys = await list(folder).catch((error: NodeJS.ErrnoException) => {
    report(folder, error.code ?? error.message);
    return [];
  });
  for (const key of keys) {
    if (key.startsWith(DRAFT_PREFIX)) continue;
    const file = join(folder, key);
    try {
      values[key] = await readFile(file, "utf8");
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      if (code !== "ENOENT") report(file, code ?? message);
      // The file may have been removed since the listing; a link is there and has no target.
      else if (await isLink(file)) report(file, DANGLING);
    }
  }
  return values;
}

const isLink = (file: string): Promise<boolean> =>
  lstat(file).then(
    (info) => info.isSymbolicLink(),
    () => false,
  );

/** Lists the names in a folder; none when it is not there or is no folder. */
const list = async (folder: string): Promise<string[]> =>
  readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT" || error.code === "ENOTDIR") return [];
    throw error;
  });

/**
 * Makes one key and stores it, mode 0600. What is there already is left alone.
 * @returns the file; null: there is something already.
 */
export async function createKeyFile(dataFolder: string, wanted: WantedKey): Promise<string | null> {
  const path = keyFile(dataFolder, wanted);
  makeFolder(dirname(path));
  const draft = join(dirname(path), `${DRAFT_PREFIX}${randomUUID()}`);
  await writeFile(draft, `${newKey(wanted.form)}\n`, { mode: 0o600, flag: "wx" });
  try {
    // A link, not a rename: it never takes the place of a file that is there.
    await link(draft, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    return null;
  } finally {
    await rm(draft, { force: true });
  }
  return path;
}
