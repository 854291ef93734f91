/**
 * Builds the console's page into `dist/console/` of the repository: in the image, and by `npm start` when its sources
 * have changed since. Everything that is served is also stored compressed, so that no request costs a compression.
 */
import { createHash } from "node:crypto";
import * as fs from "node:fs/promises";
import { join, relative, resolve } from "node:path";
import { promisify } from "node:util";
import { constants, gzip, zstdCompress } from "node:zlib";

const here = import.meta.dirname;
const root = resolve(here, "../..");
/** Where the data plane looks for it (dataplane/main.ts). */
const target = join(root, "dist", "console");
/** Holds the digest of the sources that the page was built from. */
const STAMP = ".built-from";
/** Least size of files that are compressed: smaller ones gain nothing. */
const LEAST_BYTES = 512;

/** @throws Error when the bundler is not installed, or refuses the sources. */
export async function buildConsole(say: (line: string) => void): Promise<void> {
  const digest = await sourcesDigest();
  const built = await fs.readFile(join(target, STAMP), "utf8").catch(() => "");
  if (built === digest) return;
  say("building the console");
  await fs.mkdir(join(root, "dist"), { recursive: true });
  const work = await fs.mkdtemp(join(root, "dist", ".console-"));
  try {
    await bundle(work);
    await compressAll(work);
    await fs.writeFile(join(work, STAMP), digest);
    await fs.chmod(work, 0o755);
    // Another build may have been faster; the last one stays.
    await fs.rm(target, { recursive: true, force: true });
    await fs.rename(work, target);
  } finally {
    await fs.rm(work, { recursive: true, force: true });
  }
}

async function bundle(outDir: string): Promise<void> {
  const { build } = await import("vite");
  await build({
    configFile: false,
    root: here,
    base: "/console/",
    logLevel: "warn",
    oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
    build: {
      outDir,
      emptyOutDir: true,
      target: "es2023",
      // Inlined pieces would need a wider policy than rule 11.1 allows; the polyfill is for browsers older than the target.
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
      reportCompressedSize: false,
    },
  });
}

async function compressAll(folder: string): Promise<void> {
  for (const file of await filesOf(folder)) {
    const bytes = await fs.readFile(file);
    if (bytes.length < LEAST_BYTES) continue;
    await fs.writeFile(`${file}.gz`, await promisify(gzip)(bytes, { level: 9 }));
    const params = { [constants.ZSTD_c_compressionLevel]: 19 };
    await fs.writeFile(`${file}.zst`, await promisify(zstdCompress)(bytes, { params }));
  }
}

async function sourcesDigest(): Promise<string> {
  const hash = createHash("sha256");
  const files = [...(await filesOf(here)), join(root, "package.json")];
  for (const file of files.toSorted())
    if (!/\.test\.tsx?$/.test(file)) hash.update(`${relative(root, file)}\n`).update(await fs.readFile(file));
  return hash.digest("hex");
}

async function filesOf(folder: string): Promise<string[]> {
  const entries = await fs.readdir(folder, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}

if (import.meta.main) await buildConsole((line) => process.stderr.write(`gapura: ${line}\n`));
