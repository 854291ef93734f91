/** Programs that npm does not install: the system's own, else from Debian's packages, unpacked into the cache folder. */
import { spawnSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import * as fs from "node:fs/promises";
import { delimiter, join } from "node:path";
import { cacheFolder, type Say } from "./cache.ts";

export interface Wanted {
  /** Folder in the cache folder. */
  readonly folder: string;
  /** Suitable programs, the best first. */
  readonly choices: readonly { readonly program: string; readonly debianPackage: string }[];
}

export interface Program {
  readonly path: string;
  /** Added to the environment in which it runs. */
  readonly environment: NodeJS.ProcessEnv;
}

/** Needs no root and installs nothing. @throws Error saying why there is none and none could be unpacked. */
export async function findProgram({ folder, choices }: Wanted, say: Say): Promise<Program> {
  const folders = [
    ...(process.env["PATH"] ?? "").split(delimiter),
    "/usr/local/bin",
    "/usr/bin",
    "/usr/sbin",
  ];
  for (const { program } of choices) {
    for (const place of folders) {
      const path = join(place, program);
      if (place !== "" && isExecutable(path)) return { path, environment: {} };
    }
  }
  const target = join(await cacheFolder(), folder);
  const cached = await unpackedProgram(target, choices);
  if (cached !== null) return cached;
  const problem = await unpackDebianPackages(target, choices, say);
  const unpacked = problem === null ? await unpackedProgram(target, choices) : null;
  if (unpacked !== null) return unpacked;
  throw new Error(problem ?? "the unpacked program does not run");
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** The program of an unpacked tree, when it runs. */
async function unpackedProgram(tree: string, choices: Wanted["choices"]): Promise<Program | null> {
  const libraries = await libraryFolders(tree);
  const environment = { LD_LIBRARY_PATH: libraries.join(":") };
  for (const { program } of choices) {
    for (const folder of ["bin", "sbin"]) {
      const path = join(tree, "usr", folder, program);
      if (spawnSync(path, ["--version"], { env: environment }).status === 0) return { path, environment };
    }
  }
  return null;
}

/** Every folder of the tree that holds shared libraries. */
async function libraryFolders(tree: string): Promise<string[]> {
  const found = new Set<string>();
  for (const top of ["lib", "usr/lib"]) {
    const folder = join(tree, top);
    const entries = await fs.readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
    for (const entry of entries) if (entry.name.includes(".so")) found.add(entry.parentPath);
  }
  return [...found];
}

/** Downloads a package and its missing dependencies, and unpacks them into `target`. Null, or what went wrong. */
async function unpackDebianPackages(
  target: string,
  choices: Wanted["choices"],
  say: Say,
): Promise<string | null> {
  if (spawnSync("apt-get", ["--version"]).status !== 0) return "there is no apt-get here";
  say(`downloading ${choices[0]?.program} from Debian's packages (nothing is installed)`);
  const work = await fs.mkdtemp(`${target}.`);
  try {
    const tree = join(work, "tree");
    await fs.mkdir(tree);
    // First with the machine's package lists, then with fresh ones of our own, which need no root.
    let problem = "";
    for (const lists of [[], await ownLists(work)]) {
      if (lists.length > 0) {
        say("fetching Debian's package lists");
        // Otherwise a mirror that does not answer is only a warning.
        const update = apt(work, [...lists, "-o", "APT::Update::Error-Mode=any", "update"]);
        if (update.status !== 0) problem = `Debian's mirror does not answer (${lastLine(update.stderr)})`;
      }
      for (const { debianPackage } of choices) {
        const names = neededPackages(work, lists, debianPackage);
        if (names.length === 0) {
          problem ||= `apt knows no ${debianPackage}`;
          continue;
        }
        const download = apt(work, [...lists, "download", ...names]);
        if (download.status !== 0) {
          problem = lastLine(download.stderr);
          continue;
        }
        for (const file of (await fs.readdir(work)).filter((entry) => entry.endsWith(".deb"))) {
          const unpack = spawnSync("dpkg", ["-x", join(work, file), tree], { encoding: "utf8" });
          if (unpack.status !== 0) return `dpkg -x ${file}: ${lastLine(unpack.stderr)}`;
        }
        // Another process may have been faster, and be running what it unpacked.
        if ((await unpackedProgram(target, choices)) !== null) return null;
        await fs.rm(target, { recursive: true, force: true });
        await fs.rename(tree, target);
        return null;
      }
    }
    return problem;
  } finally {
    await fs.rm(work, { recursive: true, force: true });
  }
}

/** The package and those of its dependencies that this machine lacks. */
function neededPackages(work: string, lists: readonly string[], name: string): string[] {
  const plan = apt(work, [...lists, "install", "--print-uris", "-qq", "-y", "--no-install-recommends", name]);
  return Array.from(plan.stdout.matchAll(/^'[^']+' ([a-z0-9][a-z0-9+.-]*)_/gm), (match) => match[1] ?? "");
}

/** Options that keep apt's lists and caches in a folder of ours. */
async function ownLists(work: string): Promise<string[]> {
  const folder = join(work, "apt");
  await fs.mkdir(join(folder, "lists", "partial"), { recursive: true });
  await fs.mkdir(join(folder, "cache", "archives", "partial"), { recursive: true });
  return ["-o", `Dir::State::lists=${join(folder, "lists")}`, "-o", `Dir::Cache=${join(folder, "cache")}`];
}

/** Gives up a mirror that swallows packets in seconds, not in apt's two minutes for each file. */
const TIMEOUTS = ["http", "https"].flatMap((scheme) => [
  "-o",
  `Acquire::${scheme}::Timeout=10`,
  "-o",
  `Acquire::${scheme}::ConnectionAttemptDelayMsec=250`,
]);

function apt(cwd: string, args: readonly string[]) {
  // As root apt would download as a user of its own, who may not write here.
  return spawnSync(
    "apt-get",
    ["-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=1", ...TIMEOUTS, ...args],
    {
      cwd,
      encoding: "utf8",
      env: { ...process.env, LC_ALL: "C", DEBIAN_FRONTEND: "noninteractive" },
      timeout: 120_000,
    },
  );
}

function lastLine(text: string): string {
  return text.trim().split("\n").at(-1) ?? "";
}
