/** A copy of a folder of manifests that follows it, with other texts in it. */
import { isUtf8 } from "node:buffer";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, realpathSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative, sep } from "node:path";
import { z } from "zod";
import { DRAFT_PREFIX, findManifests, type FoundFile, makeFolder } from "../operator/folder/files.ts";
import { fileFault } from "../operator/folder/parse.ts";
import { StatusPrinter } from "../operator/folder/print.ts";
import type { LocatedFault } from "../operator/folder/source.ts";
import { FolderWatch } from "../operator/folder/watch.ts";
import type { Say } from "./cache.ts";

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
  readonly say: Say;
}

/**
 * Copies what the operator would read of a folder, edited, and again after each change. Only we can read the copies:
 * manifests may hold Secrets. What cannot be copied is told, and what somebody else wrote where the copy is stays and is told.
 * @throws Error when the folder cannot be listed at first, or lies where its copy would.
 */
export function followManifests(copying: Copying): ManifestCopy {
  refuseOwnCopy(copying);
  const copier = new Copier(copying);
  copier.copy();
  const watch = new FolderWatch(copying.from, () => copier.copyAgain(), true, copying.data);
  watch.start();
  return { close: () => watch.stop() };
}

/** Manifests that are in `to` themselves would be taken for copies of their own. */
function refuseOwnCopy({ from, to }: Copying): void {
  makeFolder(to);
  if (`${realpathSync(from)}${sep}`.startsWith(`${realpathSync(to)}${sep}`))
    throw new Error(`the manifests lie in ${to}, where their copy would: choose another folder with --data`);
}

class Copier {
  readonly #copying: Copying;
  readonly #copied: CopiedFiles;
  readonly #printer: StatusPrinter;
  /** Files of somebody else that were told of. */
  #others = new Set<string>();
  /** Why it was not copied at the last change; null: it was. */
  #failure: string | null = null;

  constructor(copying: Copying) {
    this.#copying = copying;
    this.#copied = new CopiedFiles(copying.to);
    this.#printer = new StatusPrinter(copying.say, Date.now);
  }

  /** Copies, and tells why where that is not possible: the folder is away, say, and what was copied stays until it is there. */
  copyAgain(): void {
    const { from, say } = this.#copying;
    let failure: string | null = null;
    try {
      this.copy();
    } catch (error) {
      failure = error instanceof Error ? error.message : String(error);
    }
    if (failure !== null && failure !== this.#failure) say(`the copy of ${from} stays as it is: ${failure}`);
    if (failure === null && this.#failure !== null) say(`the copy of ${from} follows it again`);
    this.#failure = failure;
  }

  /** @throws Error when the folder cannot be listed, or the copy cannot be written. */
  copy(): void {
    const { from, to, data } = this.#copying;
    makeFolder(to);
    const found = findManifests(from, { except: data }).filter(({ path }) => !path.startsWith(to + sep));
    try {
      this.#printer.files(found.flatMap((file) => this.#copyFile(file)));
      this.#removeOthersThan(found);
    } finally {
      this.#copied.save();
    }
  }

  /** @returns why the file could not be read. */
  #copyFile({ path, fault }: FoundFile): LocatedFault[] {
    const unreadable = (why: string) => [{ ...fileFault(1, `cannot be read: ${why}`), file: path }];
    if (fault !== null) return unreadable(fault);
    let bytes: Buffer;
    try {
      bytes = readFileSync(path);
    } catch (error) {
      const { code = "" } = error as NodeJS.ErrnoException;
      // It went after the look: the next one comes.
      return code === "ENOENT" ? [] : unreadable(code);
    }
    // The operator refuses other encodings, and says where: in an edited text it would not find them.
    const written = isUtf8(bytes) ? Buffer.from(this.#copying.edit(bytes.toString("utf8"))) : bytes;
    this.#write(relative(this.#copying.from, path), written);
    return [];
  }

  #write(name: string, written: Buffer): void {
    const { to, say } = this.#copying;
    const target = join(to, name);
    const before = bytesIfThere(target);
    if (before?.equals(written) !== true) {
      if (before !== null && !this.#copied.has(name, before))
        say(`${target} was no copy: it is ${setAside(target)} now`);
      makeFolder(dirname(target));
      // Renamed into place, so that nobody reads half a file.
      const draft = join(dirname(target), `${DRAFT_PREFIX}copy`);
      writeFileSync(draft, written, { mode: 0o600 });
      renameSync(draft, target);
    }
    this.#copied.add(name, written);
  }

  /** Removes copies of what is not there any more. */
  #removeOthersThan(found: readonly FoundFile[]): void {
    const { from, to, say } = this.#copying;
    // What is there and cannot be read is not gone, nor is what was in a folder that cannot be looked at.
    const names = new Set(found.map(({ path }) => relative(from, path)));
    const unseen = found.flatMap(({ path, fault }) => (fault === null ? [] : [relative(from, path) + sep]));
    const others = new Set<string>();
    for (const { path } of findManifests(to)) {
      const name = relative(to, path);
      if (names.has(name) || unseen.some((folder) => name.startsWith(folder))) continue;
      const bytes = bytesIfThere(path);
      if (bytes !== null && this.#copied.has(name, bytes)) {
        rmSync(path);
        this.#copied.delete(name);
      } else others.add(path);
    }
    for (const path of others)
      if (!this.#others.has(path))
        say(`${path} is no copy: it is served only while this copy is, put it into ${from}`);
    this.#others = others;
  }
}

const copiedSchema = z.record(z.string(), z.string());

/** The digests of what was copied into a folder, by name, in a hidden file beside it. */
class CopiedFiles {
  readonly #file: string;
  readonly #digests: Map<string, string>;

  constructor(folder: string) {
    this.#file = join(dirname(folder), `.${basename(folder)}-copied.json`);
    this.#digests = new Map(Object.entries(readCopied(this.#file)));
  }

  has(name: string, bytes: Buffer): boolean {
    return this.#digests.get(name) === digestOf(bytes);
  }

  add(name: string, bytes: Buffer): void {
    this.#digests.set(name, digestOf(bytes));
  }

  delete(name: string): void {
    this.#digests.delete(name);
  }

  save(): void {
    writeFileSync(this.#file, JSON.stringify(Object.fromEntries(this.#digests)), { mode: 0o600 });
  }
}

/** Where the file cannot be read, whatever was copied is taken for somebody's own: it stays. */
function readCopied(file: string): Readonly<Record<string, string>> {
  try {
    return copiedSchema.parse(JSON.parse(readFileSync(file, "utf8")));
  } catch {
    return {};
  }
}

const digestOf = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");

/** Gives a file a name that is not looked at. @returns its path. */
function setAside(path: string): string {
  let aside = `${path}~`;
  while (existsSync(aside)) aside += "~";
  renameSync(path, aside);
  return aside;
}

/** Returns a file's text; null: it cannot be read. */
export function readIfThere(path: string): string | null {
  return bytesIfThere(path)?.toString("utf8") ?? null;
}

function bytesIfThere(path: string): Buffer | null {
  try {
    return readFileSync(path);
  } catch {
    return null;
  }
}
