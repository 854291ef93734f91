/**
 * Builds the image of a Dockerfile without a container engine: each stage is a folder, and its lines are carried out
 * in their order. What stands on the base image (Node, npm) is this machine's.
 */
import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { basename, join, relative, resolve } from "node:path";

export interface Image {
  /** What its last stage begins from. */
  readonly base: string;
  /** What its working folder became. */
  readonly folder: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly user: string;
  readonly exposed: readonly number[];
  readonly entrypoint: readonly string[];
  readonly command: readonly string[];
}

interface Stage extends Omit<Image, "folder" | "environment"> {
  readonly root: string;
  workdir: string;
  readonly environment: Record<string, string>;
  user: string;
  exposed: number[];
  entrypoint: string[];
  command: string[];
}

const RUN_TIMEOUT_MS = 300_000;

/** @param target an empty folder. @throws Error naming the line that fails, or that is not known here. */
export function buildImage(context: string, target: string): Image {
  const stages = new Map<string, Stage>();
  const files = contextFiles(context);
  let stage: Stage | null = null;
  for (const line of instructions(fs.readFileSync(join(context, "Dockerfile"), "utf8"))) {
    const [, word = "", rest = ""] = /^(\S+)\s+(.*)$/s.exec(line) ?? [];
    if (word === "FROM") {
      const name = /\sAS\s+(\S+)$/i.exec(rest)?.[1] ?? "final";
      stage = newStage(join(target, name), rest.replace(/^--platform=\S+\s+/, "").split(/\s/)[0] ?? "");
      stages.set(name, stage);
    } else if (stage === null) throw new Error(`before the first stage: ${line}`);
    else apply(stage, word, rest, { context, files, stages });
  }
  if (stage === null) throw new Error("the Dockerfile has no stage");
  const { root, workdir, ...rest } = stage;
  return { ...rest, folder: join(root, workdir) };
}

function newStage(root: string, base: string): Stage {
  return { root, base, workdir: "/", environment: {}, user: "0", exposed: [], entrypoint: [], command: [] };
}

interface Build {
  readonly context: string;
  readonly files: readonly string[];
  readonly stages: ReadonlyMap<string, Stage>;
}

function apply(stage: Stage, word: string, rest: string, build: Build): void {
  if (word === "WORKDIR") {
    stage.workdir = resolve(stage.workdir, rest);
    fs.mkdirSync(join(stage.root, stage.workdir), { recursive: true });
  } else if (word === "COPY") copy(stage, rest, build);
  else if (word === "RUN") run(stage, rest);
  else if (word === "ENV") {
    for (const [, name = "", value = ""] of rest.matchAll(/(\w+)=(\S+)/g)) stage.environment[name] = value;
  } else if (word === "USER") stage.user = rest;
  else if (word === "EXPOSE") stage.exposed.push(...rest.split(/\s+/).map(Number));
  else if (word === "ENTRYPOINT") stage.entrypoint = JSON.parse(rest) as string[];
  else if (word === "CMD") stage.command = JSON.parse(rest) as string[];
  else throw new Error(`unknown instruction: ${word} ${rest}`);
}

function copy(stage: Stage, rest: string, { context, files, stages }: Build): void {
  const words = rest.split(/\s+/);
  const from = words[0]?.startsWith("--from=") === true ? words.shift()?.slice("--from=".length) : undefined;
  const target = join(stage.root, resolve(stage.workdir, words.pop() ?? ""));
  for (const source of words) {
    if (from !== undefined) {
      const other = stages.get(from);
      if (other === undefined) throw new Error(`COPY ${rest}: there is no stage ${from}`);
      linkTree(join(other.root, resolve(other.workdir, source)), target);
      continue;
    }
    const found = files.filter((file) => file === source || file.startsWith(`${source}/`));
    if (found.length === 0) throw new Error(`COPY ${rest}: ${source} is not in the build context`);
    for (const file of found) {
      const place = file === source ? join(target, basename(file)) : join(target, relative(source, file));
      fs.cpSync(join(context, file), place);
    }
  }
}

/** A copy of a tree by hard links: tens of thousands of files in a second. */
function linkTree(from: string, to: string): void {
  fs.mkdirSync(to, { recursive: true });
  for (const entry of fs.readdirSync(from, { withFileTypes: true })) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)];
    if (entry.isDirectory()) linkTree(source, target);
    else if (entry.isSymbolicLink()) fs.symlinkSync(fs.readlinkSync(source), target);
    else fs.linkSync(source, target);
  }
}

function run(stage: Stage, rest: string): void {
  const command = rest.replace(/^(--mount=\S+\s+)+/, "");
  const { status, stdout, stderr, error } = spawnSync("sh", ["-c", command], {
    cwd: join(stage.root, stage.workdir),
    // The cache that a build mounts is the machine's own here; the network only for what it lacks.
    env: { ...process.env, ...stage.environment, npm_config_prefer_offline: "true" },
    encoding: "utf8",
    timeout: RUN_TIMEOUT_MS,
  });
  if (status !== 0) throw new Error(`RUN ${rest}: ${error?.message ?? ""}\n${stdout}${stderr}`);
}

/** The Dockerfile's lines without comments, continued ones joined. */
const instructions = (text: string): string[] =>
  text
    .replaceAll(/^\s*#.*\n/gm, "")
    .replaceAll(/\\\n\s*/g, " ")
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");

/** Paths that .dockerignore lets through, as far as its patterns are of the forms used here. */
function contextFiles(context: string): string[] {
  const patterns = fs
    .readFileSync(join(context, ".dockerignore"), "utf8")
    .split("\n")
    .filter((line) => line !== "");
  if (patterns[0] !== "*") throw new Error(".dockerignore shall leave everything out first");
  const kept = patterns.filter((line) => line.startsWith("!")).map((line) => line.slice(1));
  const suffixes = patterns
    .slice(1)
    .filter((line) => !line.startsWith("!"))
    .map((line) => {
      const suffix = /^\*\*\/\*(\.[\w.]+)$/.exec(line)?.[1];
      if (suffix === undefined) throw new Error(`.dockerignore: ${line} is of a form that is not known here`);
      return suffix;
    });
  return kept
    .flatMap((name) => {
      const path = join(context, name);
      if (!fs.statSync(path).isDirectory()) return [name];
      return fs
        .readdirSync(path, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => relative(context, join(entry.parentPath, entry.name)));
    })
    .filter((name) => !suffixes.some((suffix) => name.endsWith(suffix)));
}
