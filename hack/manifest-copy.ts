/** A copy of a folder of manifests that follows it, with other texts in it. */
import { readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { DRAFT_PREFIX, findManifests, makeFolder } from "../operator/folder/files.ts";
import { FolderWatch } from "../operator/folder/watch.ts";

export interface ManifestCopy {
  close(): void;
}

/**
 * Copies what the operator would read of `from` into `to`, edited, and again after each change. `to` may lie in `from`. Only
 * we can read the copies: manifests may hold Secrets.
 * @throws when `from` cannot be listed at first.
 */
export function followManifests(from: string, to: string, edit: (text: string) => string): ManifestCopy {
  copy(from, to, edit);
  const again = () => {
    try {
      copy(from, to, edit);
    } catch {
      // The folder is away, or a file went during the look: what was copied stays until the next change.
    }
  };
  const watch = new FolderWatch(from, again, true);
  watch.start();
  return { close: () => watch.stop() };
}

function copy(from: string, to: string, edit: (text: string) => string): void {
  makeFolder(to);
  const found = findManifests(from).filter(({ path }) => !path.startsWith(to + sep));
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
  // What is there and cannot be read is not gone.
  const names = new Set(found.map(({ path }) => relative(from, path)));
  for (const { path } of findManifests(to)) if (!names.has(relative(to, path))) rmSync(path);
}

/** Returns a file's text; null: it cannot be read. */
export function readIfThere(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return null;
  }
}
