/**
 * Reads prices out of a catalogue that is a package on npm, in the form of `@pydantic/genai-prices`. The package is
 * fetched for the one look and is no dependency of ours; its code runs in a process that may read nothing else, write
 * nothing and start nothing.
 */
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { z } from "zod";

const run = promisify(execFile);
const FETCH_MS = 120_000;
const READ_MS = 30_000;

const tieredSchema = z.object({
  base: z.number().nonnegative(),
  tiers: z.array(z.object({ start: z.number().nonnegative(), price: z.number().nonnegative() })),
});
export type CataloguePrice = number | z.infer<typeof tieredSchema>;
const pricesSchema = z.record(z.string(), z.union([z.number().nonnegative(), tieredSchema]));

/** One model of the catalogue, in US dollars. */
const modelSchema = z.object({
  provider: z.string(),
  id: z.string(),
  comments: z.string().optional(),
  /** Oldest first; `from` is a day, absent: from the beginning. */
  prices: z.array(z.object({ from: z.iso.date().optional(), prices: pricesSchema })).min(1),
});
export type CatalogueModel = z.infer<typeof modelSchema>;

export interface Catalogue {
  readonly name: string;
  readonly version: string;
  /** Models by the id that was asked for; null: the catalogue has no price for it. */
  readonly models: ReadonlyMap<string, CatalogueModel | null>;
}

/** Program of that process: plain JavaScript, as it has nothing but the package. Prices by the hour of the day are left out. */
const reader = `
const { calcPrice } = await import(process.argv[1]);
const found = JSON.parse(process.argv[2]).map((asked) => {
  const colon = asked.indexOf(":");
  const [provider, id] = colon < 0 ? [undefined, asked] : [asked.slice(0, colon), asked.slice(colon + 1)];
  const result = calcPrice({ input_tokens: 1 }, id, provider === undefined ? {} : { providerId: provider });
  if (!result) return null;
  const { model } = result;
  const listed = Array.isArray(model.prices) ? model.prices : [{ prices: model.prices }];
  const prices = listed
    .filter(({ constraint }) => constraint === undefined || constraint.type === "start_date")
    .map(({ constraint, prices }) => ({ from: constraint?.start_date, prices }));
  return { provider: result.provider.id, id: model.id, comments: model.price_comments, prices };
});
console.log(JSON.stringify(found));
`;

/**
 * @param from a package's name, also with a version (`name@1.2.3`), or the folder of one (beginning with `.` or `/`).
 * @param asked ids of models, also as `provider:id`.
 * @throws Error when the package cannot be fetched, or has not the form of such a catalogue.
 */
export async function readCatalogue(from: string, asked: readonly string[]): Promise<Catalogue> {
  if (/^[./]/.test(from)) return await readFolder(resolve(from), asked);
  const folder = mkdtempSync(join(tmpdir(), "gapura-prices-"));
  try {
    const options = ["--ignore-scripts", "--no-save", "--no-package-lock", "--no-audit", "--no-fund"];
    await run("npm", ["install", "--prefix", folder, ...options, "--", from], { timeout: FETCH_MS }).catch(
      (error: unknown) => {
        throw new Error(`npm cannot fetch ${from}: ${reasonOf(error)}`);
      },
    );
    return await readFolder(join(folder, "node_modules", from.replace(/(?!^)@.*$/, "")), asked);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Why a command failed: the first line of its errors that names a reason. */
function reasonOf(error: unknown): string {
  const { stderr = "", message = "" } = error as { stderr?: string; message?: string };
  const said = stderr.split("\n").map((line) => line.replace(/^npm error\s*/, "").trim());
  return said.find((line) => /^(?:\d{3} |\w*Error\b)/.test(line)) ?? message.split("\n")[0] ?? "";
}

const manifestSchema = z.looseObject({ name: z.string(), version: z.string(), module: z.string() });

async function readFolder(given: string, asked: readonly string[]): Promise<Catalogue> {
  const folder = realpathSync(given);
  const read = manifestSchema.safeParse(JSON.parse(readFileSync(join(folder, "package.json"), "utf8")));
  const isNone = `${given.replace(/^.*node_modules\//, "")} is no catalogue of the form of @pydantic/genai-prices`;
  if (!read.success) throw new Error(`${isNone}: ${z.prettifyError(read.error)}`);
  const manifest = read.data;
  const { stdout } = await run(
    process.execPath,
    [
      "--permission",
      `--allow-fs-read=${folder}`,
      "--input-type=module",
      "--eval",
      reader,
      new URL(`file://${join(folder, manifest.module)}`).href,
      JSON.stringify(asked),
    ],
    { cwd: folder, env: {}, timeout: READ_MS, maxBuffer: 16 * 1024 * 1024 },
  ).catch((error: unknown) => {
    throw new Error(`${isNone}: ${reasonOf(error)}`);
  });
  const found = z.array(modelSchema.nullable()).length(asked.length).parse(JSON.parse(stdout));
  return {
    name: manifest.name,
    version: manifest.version,
    models: new Map(asked.map((id, index) => [id, found[index] ?? null])),
  };
}
