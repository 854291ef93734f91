/**
 * Prices from a catalogue on npm, for a person to review: nothing is read at run time.
 *
 * `npm run prices -- --from @pydantic/genai-prices --models a,b` prints a PriceTable in US dollars. A model is an id of
 *   the catalogue, also `provider:id`; `public=id` gives it the name that clients send.
 * `npm run prices -- --check DIR` names where the PriceTables in a folder of manifests differ, looking each model up
 *   by its id and by the names of its upstreams. Exit 0 when nothing that could be compared differs, 1 when something differs, 2 when it cannot look.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { Document, parseAllDocuments } from "yaml";
import { z } from "zod";
import { commandArguments } from "../dataplane/lib/command-arguments.ts";
import { priceTableSpec } from "../operator/api/price-table.ts";
import { differences, entryOf } from "./catalogue-prices.ts";
import { readCatalogue } from "./price-catalogue.ts";

const CATALOGUE = "@pydantic/genai-prices";
const USAGE = `usage: npm run prices -- [--from ${CATALOGUE}] --models A,NAME=B | --check DIR`;

const manifestSchema = z.looseObject({
  kind: z.string(),
  metadata: z.looseObject({ name: z.string(), namespace: z.string().optional() }),
  spec: z.unknown(),
});
const routeSchema = z.looseObject({
  model: z.string().optional(),
  upstreams: z.array(z.looseObject({ model: z.string().optional() })),
});

async function write(from: string, models: readonly string[], now: Date): Promise<void> {
  const asked = models.map((text) => {
    const [name = "", id] = text.split("=");
    return id === undefined ? { model: name.replace(/^[^:]*:/, ""), id: name } : { model: name, id };
  });
  const {
    name,
    version,
    models: found,
  } = await readCatalogue(
    from,
    asked.map(({ id }) => id),
  );
  const comments: string[] = [];
  const entries = asked.map(({ model, id }) => {
    const entry = found.get(id);
    if (entry === undefined || entry === null) throw new Error(`${name} has no price for ${id}`);
    const { entry: written, leftOut } = entryOf(model, entry, now.getTime());
    comments.push(`${model}: ${entry.provider}:${entry.id}. ${entry.comments ?? ""}`.trim());
    if (leftOut.length > 0) comments.push(`${model}: left out: ${leftOut.join(", ")}`);
    return written;
  });
  const table = new Document({
    apiVersion: "gapura.dev/v1alpha1",
    kind: "PriceTable",
    metadata: { name: "default" },
    spec: priceTableSpec.parse({ unit: "USD", models: entries }),
  });
  table.commentBefore = [
    `From ${name} ${version}, ${now.toISOString().slice(0, 10)}. Review it against the provider's own page:`,
    "tiers of service (serviceTiers) are in no catalogue.",
    ...comments,
  ]
    .map((line) => ` ${line}`)
    .join("\n");
  process.stdout.write(table.toString({ lineWidth: 0 }));
}

/** @returns whether all agree. */
async function check(from: string, folder: string, now: Date): Promise<boolean> {
  const manifests = readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((file) => /\.ya?ml$/.test(file))
    .toSorted()
    .flatMap((file) =>
      parseAllDocuments(readFileSync(join(folder, file), "utf8")).flatMap((document) => {
        const read = manifestSchema.safeParse(document.toJS());
        return read.success ? [{ file, ...read.data }] : [];
      }),
    );
  const upstreamNames = new Map<string, string[]>();
  for (const { kind, metadata, spec } of manifests) {
    const route = kind === "ModelRoute" ? routeSchema.safeParse(spec) : null;
    if (route?.success !== true) continue;
    const model = route.data.model ?? metadata.name;
    const more = route.data.upstreams.flatMap((upstream) => upstream.model ?? []);
    upstreamNames.set(model, [...(upstreamNames.get(model) ?? []), ...more]);
  }
  const tables = manifests.flatMap(({ file, kind, metadata, spec }) =>
    kind === "PriceTable"
      ? [{ where: `${file}: PriceTable ${metadata.name}`, spec: priceTableSpec.parse(spec) }]
      : [],
  );
  const namesOf = (model: string) => [...new Set([model, ...(upstreamNames.get(model) ?? [])])];
  const asked = new Set(
    tables.flatMap(({ spec }) => (spec.models ?? []).flatMap(({ model }) => namesOf(model))),
  );
  const { name, version, models: found } = await readCatalogue(from, [...asked]);
  let agree = true;
  let compared = 0;
  for (const { where, spec } of tables) {
    if (spec.unit !== "USD") {
      console.log(`${where}: in credits, not compared`);
      continue;
    }
    for (const entry of spec.models ?? []) {
      const model = namesOf(entry.model)
        .map((id) => found.get(id))
        .find((one) => one !== null && one !== undefined);
      if (model === undefined) {
        console.log(`${where}: ${entry.model}: not in ${name}`);
        continue;
      }
      compared += 1;
      for (const line of differences(entry, model, now.getTime())) {
        agree = false;
        console.log(`${where}: ${entry.model}: ${line} (${model.provider}:${model.id})`);
      }
    }
  }
  const models = compared === 1 ? "1 model" : `${compared} models`;
  console.log(
    `compared ${models} with ${name} ${version}${agree && compared > 0 ? ": the prices agree" : ""}`,
  );
  return agree;
}

try {
  const { values } = commandArguments(USAGE, {
    options: { from: { type: "string" }, models: { type: "string" }, check: { type: "string" } },
  });
  // npm runs us in the repository's folder; paths are relative to where the user is.
  const here = process.env["INIT_CWD"] ?? process.cwd();
  const given = values.from ?? CATALOGUE;
  const from = /^[./]/.test(given) ? resolve(here, given) : given;
  const models = values.models?.split(",").filter((model) => model !== "") ?? [];
  if ((values.check === undefined) === (models.length === 0))
    throw new Error("say either --models a,b or --check DIR");
  if (values.check === undefined) await write(from, models, new Date());
  else if (!(await check(from, resolve(here, values.check), new Date()))) process.exitCode = 1;
} catch (error) {
  const reason = error instanceof z.ZodError ? z.prettifyError(error) : (error as Error).message;
  console.error(`prices: ${reason}`);
  process.exitCode = 2;
}
