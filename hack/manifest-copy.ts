/** A copy of a folder of manifests that follows it, with other texts in it. */
import { readFileSync, realpathSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { DRAFT_PREFIX, findManifests, makeFolder } from "../operator/folder/files.ts";
import { FolderWatch } from "../operator/folder/watch.ts";

export interface ManifestCopy {
  close(): void;
}

export interface Copying {
  readonly from: string;
  /** May lie in `from`. */
  readonly to: string;
  /** The data folder, which is left out where it lies in `from`. */
  readonly data: string;
  readonly edit: (text: string) => string;
}

/**
 * Copies what the operator would read of a folder, edited, and again after each change. Only we can read the copies:
 * manifests may hold Secrets.
 * @throws Error when the folder cannot be listed at first, or lies where its copy would.
 */
export function followManifests(copying: Copying): ManifestCopy {
  refuseOwnCopy(copying);
  copy(copying);
  const again = () => {
    try {
      copy(copying);
    } catch {
      // The folder is away, or a file went during the look: what was copied stays until the next change.
    }
  };
  const watch = new FolderWatch(copying.from, again, true, copying.data);
  watch.start();
  return { close: () => watch.stop() };
}

/** What is in `to` and not in `from` is removed there: manifests that are in `to` themselves would be. */
function refuseOwnCopy({ from, to }: Copying): void {
  makeFolder(to);
  if (`${realpathSync(from)}${sep}`.startsWith(`${realpathSync(to)}${sep}`))
    throw new Error(`the manifests lie in ${to}, where their copy would: choose another folder with --data`);
}

function copy({ from, to, data, edit }: Copying): void {
  makeFolder(to);
  const found = findManifests(from, { except: data }).filter(({ path }) => !path.startsWith(to + sep));
  for (const { path } of found) {
    const text = readIfThere(path);
    if (text === null) continue;
    const target = join(to, relative(from, path));
    const written = edit(text);
    if (readIfThere(target) === written) continue;
    makeFolder(dirname(target));
    // Renamed into place, so that nobody reads half a file.
    const draft = join(dirname(target), `${DRAFT_PREFIX}copy`);
    writeFileSync(draft, written, { mode: 0o600 });
    renameSync(draft, target);
  }
  // What is there and cannot be read is not gone, nor is what was in a folder that cannot be looked at.
  const names = new Set(found.map(({ path }) => relative(from, path)));
  const unseen = found.flatMap(({ path, fault }) => (fault === null ? [] : [relative(from, path) + sep]));
  for (const { path } of findManifests(to)) {
    const name = relative(to, path);
    if (!names.has(name) && !unseen.some((folder) => name.startsWith(folder))) rmSync(path);
  }
}

/** Returns a file's text; null: it cannot be read. */
export function readIfThere(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return null;
  }
}
