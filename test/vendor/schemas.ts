/**
 * The vendors' type declarations as JSON schemas. Making them takes a few seconds and a compiler, so they are kept in the
 * cache folder, by the versions of all that went into them.
 */
import { createHash } from "node:crypto";
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { cacheFolder } from "../../hack/cache.ts";
import { type VendorType, vendorTypes } from "./vendor-type.ts";

const entry = join(import.meta.dirname, "types.ts");
const sources = ["@anthropic-ai/sdk", "openai", "ts-json-schema-generator"] as const;

export type Schema = { readonly [key: string]: unknown };

/** Each type's own schema: definitions go by names, and two vendors' types may share one. */
export type VendorSchemas = Readonly<Record<VendorType, Schema>>;

export async function vendorSchemas(): Promise<VendorSchemas> {
  const path = join(await cacheFolder(), "vendor-schemas", `${await fingerprint()}.json`);
  const kept = await readFile(path, "utf8").catch(() => null);
  if (kept !== null) return JSON.parse(kept) as VendorSchemas;
  const schemas = await generate();
  await mkdir(dirname(path), { recursive: true });
  // Several test processes may come here at once: each writes its own, the last one stays.
  const own = `${path}.${process.pid}`;
  await writeFile(own, JSON.stringify(schemas));
  await rename(own, path);
  return schemas;
}

async function fingerprint(): Promise<string> {
  const hash = createHash("sha256");
  const require = createRequire(import.meta.url);
  for (const name of sources) {
    const [root = ""] = require.resolve(name).split(join("node_modules", name));
    const manifest = await readFile(join(root, "node_modules", name, "package.json"), "utf8");
    hash.update(`${name}@${(JSON.parse(manifest) as { version: string }).version}\n`);
  }
  for (const file of [entry, import.meta.filename, join(import.meta.dirname, "vendor-type.ts")])
    hash.update(await readFile(file));
  return hash.digest("hex").slice(0, 24);
}

async function generate(): Promise<VendorSchemas> {
  // It brings a compiler, which is not loaded where the schemas are kept.
  const { createGenerator } = await import("ts-json-schema-generator");
  const generator = createGenerator({
    path: entry,
    tsconfig: join(import.meta.dirname, "tsconfig.json"),
    expose: "all",
    topRef: false,
    jsDoc: "none",
    functions: "hide",
    skipTypeCheck: true,
    // Vendors add fields; ours are told in docs/reference/dialects.md.
    additionalProperties: true,
  });
  return Object.fromEntries(
    vendorTypes.map((type) => [type, generator.createSchema(type) as Schema]),
  ) as VendorSchemas;
}
