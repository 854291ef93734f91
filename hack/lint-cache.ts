/**
 * Which files lint has yet to judge. Rules on types look into what a file imports, so a good file is judged again when it has
 * changed, or anything that it reaches by imports, or a file that all depend on.
 */
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";

/** Files below the root that hold for every file. The lockfile stands for node_modules, the linter among them. */
const OF_ALL = [
  ".oxlintrc.json",
  "package.json",
  "package-lock.json",
  "tsconfig.json",
  "dataplane/console/src/tsconfig.json",
];

/** Whether a file declares something for all files. */
const isAmbient = (path: string, text: string) =>
  path.endsWith(".d.ts") || /^\s*declare (?:global|module)\b/m.test(text);

/** Texts that look like the path of another file: imports of every form, and some others. */
const neighbours = (path: string, text: string): string[] =>
  Array.from(text.matchAll(/["'`](\.\.?\/[^"'`\s]+)["'`]/g), ([, to = ""]) =>
    posix.join(posix.dirname(path), to),
  );

/**
 * For each file a digest of all that lint judges it by.
 * @param texts of all files by path from the root, with slashes
 * @param ofAll what else the outcome depends on
 */
export function lintDigests(
  texts: ReadonlyMap<string, string>,
  ofAll: readonly string[],
): ReadonlyMap<string, string> {
  const paths = [...texts.keys()].toSorted();
  const everybody = paths.filter((path) => isAmbient(path, texts.get(path) ?? ""));
  const start = digestOf([...ofAll, ...everybody.map((path) => texts.get(path) ?? "")]);
  const own = new Map(paths.map((path) => [path, digestOf([path, texts.get(path) ?? ""])]));
  const next = new Map(
    paths.map((path) => [path, neighbours(path, texts.get(path) ?? "").filter((to) => texts.has(to))]),
  );
  return new Map(
    paths.map((path) => {
      const reached = new Set([path]);
      // The walk includes what is added to the set meanwhile.
      for (const each of reached) for (const to of next.get(each) ?? []) reached.add(to);
      return [
        path,
        digestOf([start, path, ...Array.from(reached, (each) => own.get(each) ?? "").toSorted()]),
      ];
    }),
  );
}

function digestOf(parts: readonly string[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(`${Buffer.byteLength(part)} `).update(part);
  return hash.digest("base64url");
}

/** Digests of files found good before, in a file of node_modules. */
export class LintCache {
  readonly #file: string;
  readonly #digests: ReadonlyMap<string, string>;

  /** @param files all that are to be judged, by path from `root` */
  constructor(root: string, files: readonly string[]) {
    this.#file = join(root, "node_modules", ".cache", "lint.json");
    const read = (path: string) => readFileSync(join(root, path), "utf8");
    const texts = new Map(files.map((path) => [path, read(path)]));
    // Files that are imported and not judged: JSON.
    for (const [path, text] of texts)
      for (const to of neighbours(path, text))
        if (!texts.has(to) && statSync(join(root, to), { throwIfNoEntry: false })?.isFile() === true)
          texts.set(to, read(to));
    const digests = lintDigests(texts, OF_ALL.map(read));
    this.#digests = new Map(files.map((path) => [path, digests.get(path) ?? ""]));
  }

  /** The files that are to be judged. */
  unjudged(): string[] {
    let good: ReadonlySet<string>;
    try {
      good = new Set(JSON.parse(readFileSync(this.#file, "utf8")) as string[]);
    } catch {
      good = new Set();
    }
    return [...this.#digests].filter(([, digest]) => !good.has(digest)).map(([path]) => path);
  }

  /** All files were found good, as they were when this cache was made. */
  keep(): void {
    mkdirSync(dirname(this.#file), { recursive: true });
    writeFileSync(this.#file, JSON.stringify([...this.#digests.values()]));
  }
}
