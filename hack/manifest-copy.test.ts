import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { mentions } from "./demo.ts";
import { followManifests, type ManifestCopy } from "./manifest-copy.ts";

let folder = "";
let from = "";
let copy: ManifestCopy | null = null;

beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), "gapura-manifest-copy-"));
  from = join(folder, "manifests");
  fs.mkdirSync(from);
});
afterEach(() => {
  copy?.close();
  copy = null;
  fs.rmSync(folder, { recursive: true, force: true });
});

const write = (name: string, text: string) => fs.writeFileSync(join(from, name), text);
const follow = (to: string) => {
  const edit = (text: string) => text.replaceAll("9400", "1234");
  copy = followManifests({ from, to, data: dirname(to), edit });
};
const filesIn = (to: string) =>
  (fs.readdirSync(to, { recursive: true }) as string[]).filter((name) =>
    fs.statSync(join(to, name)).isFile(),
  );

test("a copy has what the operator reads: any case of ending, linked folders, nothing hidden, for us alone", () => {
  const to = join(folder, "data", "copy");
  fs.mkdirSync(join(folder, "elsewhere"));
  fs.writeFileSync(join(folder, "elsewhere", "prices.yaml"), "port: 9400");
  fs.symlinkSync(join(folder, "elsewhere"), join(from, "more"));
  write("models.YAML", "port: 9400");
  write(".hidden.yaml", "port: 9400");
  const before = process.umask(0);
  try {
    follow(to);
  } finally {
    process.umask(before);
  }

  expect(filesIn(to).sort()).toEqual(["models.YAML", "more/prices.yaml"]);
  expect(fs.readFileSync(join(to, "more/prices.yaml"), "utf8")).toBe("port: 1234");
  for (const name of [".", "more"]) expect(fs.statSync(join(to, name)).mode & 0o777).toBe(0o700);
  for (const name of filesIn(to)) expect(fs.statSync(join(to, name)).mode & 0o777).toBe(0o600);
});

test("a copy inside of the folder is not copied again", async () => {
  const to = join(from, "data", "copy");
  write("models.yaml", "port: 9400");
  follow(to);
  write("models.yaml", "other: 9400");
  await vi.waitFor(() => expect(fs.readFileSync(join(to, "models.yaml"), "utf8")).toBe("other: 1234"));
  expect(filesIn(to)).toEqual(["models.yaml"]);
});

test("what is there and cannot be read, and a folder that is away, leave the copies as they are", async () => {
  const to = join(folder, "copy");
  write("models.yaml", "port: 9400");
  follow(to);
  fs.rmSync(join(from, "models.yaml"));
  fs.symlinkSync(join(folder, "nowhere"), join(from, "models.yaml"));
  fs.mkdirSync(join(from, "folder.yaml"));
  write("prices.yaml", "price: 1");
  await vi.waitFor(() => expect(filesIn(to).sort()).toEqual(["models.yaml", "prices.yaml"]));
  expect(mentions(from, to, "price: 1")).toBe(true);
  expect(mentions(from, to, "9400")).toBe(false);

  fs.renameSync(from, join(folder, "away"));
  // Longer than the watch waits before it looks.
  await sleep(100);
  expect(filesIn(to).sort()).toEqual(["models.yaml", "prices.yaml"]);
  fs.renameSync(join(folder, "away"), from);
  fs.rmSync(join(from, "models.yaml"));
  await vi.waitFor(() => expect(filesIn(to)).toEqual(["prices.yaml"]), 5_000);
});

test("a linked folder that is away leaves its copies as they are", async () => {
  const to = join(folder, "copy");
  fs.mkdirSync(join(folder, "elsewhere"));
  fs.writeFileSync(join(folder, "elsewhere", "prices.yaml"), "price: 1");
  fs.symlinkSync(join(folder, "elsewhere"), join(from, "more"));
  write("more.yaml", "port: 9400");
  follow(to);
  fs.renameSync(join(folder, "elsewhere"), join(folder, "away"));
  fs.rmSync(join(from, "more.yaml"));
  await vi.waitFor(() => expect(filesIn(to)).toEqual(["more/prices.yaml"]), 5_000);
});

test("manifests that lie where their copy would are refused, and stay", () => {
  fs.mkdirSync(join(from, "deeper"));
  write("deeper/models.yaml", "port: 9400");
  fs.symlinkSync(from, join(folder, "link"));
  for (const [source, to] of [
    [from, from],
    [join(from, "deeper"), from],
    [from, join(folder, "link")],
  ] as const)
    expect(() => {
      copy = followManifests({ from: source, to, data: folder, edit: String });
    }).toThrow(`the manifests lie in ${to}, where their copy would`);
  expect(filesIn(from)).toEqual(["deeper/models.yaml"]);
});
