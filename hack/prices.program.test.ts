/** `npm run prices` on a catalogue of the form of `@pydantic/genai-prices`; a real one is fetched by nobody's test. */
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { parse } from "yaml";

const folder = mkdtempSync(join(tmpdir(), "gapura-prices-test-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const models = {
  small: {
    id: "small-1",
    prices: {
      input_mtok: 0.075,
      output_mtok: 0.3,
      input_audio_mtok: 0.7,
      output_image_mtok: 30,
      images_kcount: 1,
    },
  },
  "small:free": { id: "small-1:free", prices: { input_mtok: 1, output_mtok: 1 } },
  large: {
    id: "large-1",
    price_comments: "Long prompts cost more.",
    prices: [
      { prices: { input_mtok: 9, output_mtok: 9 } },
      {
        constraint: { type: "start_date", start_date: "2026-01-01" },
        prices: {
          input_mtok: { base: 3, tiers: [{ start: 200_000, price: 6 }] },
          output_mtok: 15,
          cache_write_mtok: 3.75,
        },
      },
      {
        constraint: { type: "start_date", start_date: "9999-01-01" },
        prices: { input_mtok: 1, output_mtok: 2 },
      },
      {
        constraint: { type: "time_of_date", start_time: "00:00", end_time: "08:00" },
        prices: { input_mtok: 0, output_mtok: 0 },
      },
    ],
  },
};
const catalogue = join(folder, "catalogue");
mkdirSync(catalogue);
const write = (path: string, text: string) => writeFileSync(join(folder, path), text);
write(
  "catalogue/package.json",
  JSON.stringify({ name: "prices-of-tests", version: "1.2.3", type: "module", module: "index.js" }),
);
write(
  "catalogue/index.js",
  `const models = ${JSON.stringify(models)};
export const calcPrice = (usage, id, { providerId = "test" } = {}) =>
  models[id] === undefined || providerId !== "test" ? null : { provider: { id: "test" }, model: models[id] };`,
);

const prices = (...options: string[]) =>
  new Promise<{ code: number; out: string; error: string }>((resolve) => {
    const given = ["hack/prices.ts", "--from", catalogue, ...options];
    execFile(process.execPath, given, (failure, out, error) =>
      resolve({ code: failure === null ? 0 : Number(failure.code), out, error }),
    );
  });

test("--models writes a PriceTable with its source, the prices of now, and those that come", async () => {
  const { code, out } = await prices("--models", "ours=test:large,small");
  expect(code).toBe(0);
  expect(out).toMatch(/^# From prices-of-tests 1\.2\.3, \d{4}-\d\d-\d\d\./);
  expect(out).toContain("# ours: test:large-1. Long prompts cost more.");
  expect(out).toContain("# small: left out: images_kcount");
  expect(parse(out)).toMatchObject({
    kind: "PriceTable",
    spec: {
      unit: "USD",
      models: [
        {
          model: "ours",
          input: "3",
          output: "15",
          cacheWrite5m: "3.75",
          tiers: [{ inputOver: 200_000, input: "6", output: "15", cacheWrite5m: "3.75" }],
          changes: [{ from: "9999-01-01T00:00:00Z", input: "1", output: "2" }],
        },
        { model: "small", input: "0.075", output: "0.3", audioInput: "0.7", imageOutput: "30" },
      ],
    },
  });
});

test("ids with a colon of their own stay whole", async () => {
  const { code, out } = await prices("--models", "small:8b=test:small:free,test:small:free");
  expect(code).toBe(0);
  expect(parse(out)).toMatchObject({ spec: { models: [{ model: "small:8b" }, { model: "small:free" }] } });
});

test("what the catalogue does not know is an error, and so is a question without an object", async () => {
  expect(await prices("--models", "unknown")).toMatchObject({
    code: 2,
    out: "",
    error: "prices: prices-of-tests has no price for unknown\n",
  });
  expect(await prices()).toMatchObject({
    code: 2,
    error: "prices: say either --models a,b or --check DIR\n",
  });
});

test("a catalogue's code may not write, and reads nothing but itself", async () => {
  mkdirSync(join(folder, "hostile"));
  write(
    "hostile/package.json",
    JSON.stringify({ name: "h", version: "1.0.0", type: "module", module: "index.js" }),
  );
  write(
    "hostile/index.js",
    `import fs from "node:fs";
fs.readFileSync(${JSON.stringify(join(catalogue, "index.js"))});
export const calcPrice = () => null;`,
  );
  const { code, error } = await prices("--from", join(folder, "hostile"), "--models", "a");
  expect(code).toBe(2);
  expect(error).toContain("Access to this API has been restricted");
});

test("--check names each price that differs, and looks by the names of upstreams", async () => {
  mkdirSync(join(folder, "manifests"));
  const table = (unit: string, input: string) => `
apiVersion: gapura.dev/v1alpha1
kind: PriceTable
metadata: {name: ${unit.toLowerCase()}}
spec:
  unit: ${unit}
  models:
  - {model: public, input: "${input}", output: "15.00", cacheWrite5m: "3.75", tiers: [{inputOver: 200000, input: "6"}]}
  - {model: nobody-knows, input: "1", output: "1"}
`;
  const route = `
kind: ModelRoute
metadata: {name: public}
spec: {upstreams: [{name: one, model: large}]}
`;
  write("manifests/route.yaml", route);
  write("manifests/table.yaml", table("USD", "3.0"));
  const folderOf = ["--check", join(folder, "manifests")];
  expect(await prices(...folderOf)).toMatchObject({
    code: 0,
    out: "table.yaml: PriceTable usd: nobody-knows: not in prices-of-tests\ncompared 1 model with prices-of-tests 1.2.3: the prices agree\n",
  });
  write("manifests/table.yaml", table("USD", "2.5") + "---" + table("Credit", "1"));
  const { code, out } = await prices(...folderOf);
  expect(code).toBe(1);
  expect(out.split("\n")).toEqual([
    "table.yaml: PriceTable usd: public: input is 2.5, the catalogue has 3 (test:large-1)",
    "table.yaml: PriceTable usd: nobody-knows: not in prices-of-tests",
    "table.yaml: PriceTable credit: in credits, not compared",
    "compared 1 model with prices-of-tests 1.2.3",
    "",
  ]);
});

test("where nothing could be compared, nothing is said to agree", async () => {
  mkdirSync(join(folder, "unknown"));
  const spec = { unit: "USD", models: [{ model: "nobody-knows", input: "1", output: "1" }] };
  const table = { kind: "PriceTable", metadata: { name: "t" }, spec };
  write("unknown/table.yaml", JSON.stringify(table));
  const { code, out } = await prices("--check", join(folder, "unknown"));
  expect([code, out.split("\n").at(-2)]).toEqual([0, "compared 0 models with prices-of-tests 1.2.3"]);
  write("unknown/table.yaml", JSON.stringify({ ...table, spec: { ...spec, unit: "Euro" } }));
  const broken = await prices("--check", join(folder, "unknown"));
  expect(broken).toMatchObject({ code: 2, out: "" });
  expect(broken.error).toMatch(/^prices: ✖ Invalid option.*\n.*→ at unit\n$/);
});

test("a package that is no catalogue is called that", async () => {
  mkdirSync(join(folder, "pad"));
  write("pad/package.json", JSON.stringify({ name: "pad", version: "1.0.0", main: "index.js" }));
  const missing = await prices("--from", join(folder, "pad"), "--models", "a");
  expect(missing.code).toBe(2);
  expect(missing.error).toContain("pad is no catalogue of the form of @pydantic/genai-prices");
  write("pad/package.json", JSON.stringify({ name: "pad", version: "1.0.0", module: "index.js" }));
  write("pad/index.js", "export const pad = 1;");
  const other = await prices("--from", join(folder, "pad"), "--models", "a");
  expect(other.code).toBe(2);
  expect(other.error).toContain(
    "pad is no catalogue of the form of @pydantic/genai-prices: TypeError: calcPrice",
  );
});

test("an option that there is not is answered with how it is called", async () => {
  const { code, error } = await prices("--help");
  expect(code).toBe(2);
  expect(error).toContain("\nusage: npm run prices -- [--from");
});
