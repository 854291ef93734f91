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
/** What was told of the copy. */
const told: string[] = [];
const follow = (to: string) => {
  const edit = (text: string) => text.replaceAll("9400", "1234");
  told.length = 0;
  copy = followManifests({ from, to, data: dirname(to), edit, say: (line) => told.push(line) });
};
const read = (path: string) => fs.readFileSync(path, "utf8");
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
      copy = followManifests({ from: source, to, data: folder, edit: String, say: () => {} });
    }).toThrow(`the manifests lie in ${to}, where their copy would`);
  expect(filesIn(from)).toEqual(["deeper/models.yaml"]);
});

test("manifests that cannot be read, and a folder that is away, are told once while that lasts", async () => {
  const to = join(folder, "copy");
  write("models.yaml", "port: 9400");
  fs.symlinkSync(join(folder, "nowhere"), join(from, "link.yaml"));
  follow(to);
  expect(told).toEqual([
    `${join(from, "link.yaml")}:1 Unreadable: cannot be read: it is a link to what is not there`,
  ]);
  write("prices.yaml", "price: 1");
  await vi.waitFor(() => expect(filesIn(to).sort()).toEqual(["models.yaml", "prices.yaml"]));
  expect(told).toHaveLength(1);

  fs.renameSync(from, join(folder, "away"));
  await vi.waitFor(() => expect(told).toHaveLength(2), 5_000);
  expect(told[1]).toMatch(/^the copy of .* stays as it is: ENOENT/);
  fs.renameSync(join(folder, "away"), from);
  fs.rmSync(join(from, "link.yaml"));
  await vi.waitFor(() => expect(told.at(-1)).toBe(`the copy of ${from} follows it again`), 5_000);
});

test("a manifest that is no UTF-8 is copied as it is, so that its fault is told of the copy", () => {
  const to = join(folder, "copy");
  const bytes = Buffer.from([0x70, 0xfc, 0x0a]);
  fs.writeFileSync(join(from, "latin.yaml"), bytes);
  follow(to);
  expect(fs.readFileSync(join(to, "latin.yaml"))).toEqual(bytes);
});

test("manifests of somebody else where the copy is stay, and are told", async () => {
  const to = join(folder, "copy");
  fs.mkdirSync(to);
  fs.writeFileSync(join(to, "mine.yaml"), "mine: 1");
  fs.writeFileSync(join(to, "models.yaml"), "mine: 2");
  write("models.yaml", "port: 9400");
  follow(to);
  expect(filesIn(to).sort()).toEqual(["mine.yaml", "models.yaml", "models.yaml~"]);
  expect([read(join(to, "mine.yaml")), read(join(to, "models.yaml~"))]).toEqual(["mine: 1", "mine: 2"]);
  expect(read(join(to, "models.yaml"))).toBe("port: 1234");
  expect(told).toEqual([
    `${join(to, "models.yaml")} was no copy: it is ${join(to, "models.yaml~")} now`,
    `${join(to, "mine.yaml")} is no copy: it is served only while this copy is, put it into ${from}`,
  ]);
  copy?.close();

  // The next start knows what it copied, and what it did not.
  fs.rmSync(join(from, "models.yaml"));
  write("prices.yaml", "price: 1");
  follow(to);
  expect(filesIn(to).sort()).toEqual(["mine.yaml", "models.yaml~", "prices.yaml"]);
  expect(told).toHaveLength(1);
  copy?.close();

  fs.writeFileSync(join(to, "prices.yaml"), "price: 2");
  write("prices.yaml", "price: 3");
  follow(to);
  expect([read(join(to, "prices.yaml")), read(join(to, "prices.yaml~"))]).toEqual(["price: 3", "price: 2"]);
  fs.writeFileSync(join(to, "prices.yaml"), "price: 4");
  write("prices.yaml", "price: 5");
  await vi.waitFor(() => expect(read(join(to, "prices.yaml"))).toBe("price: 5"));
  expect(read(join(to, "prices.yaml~~"))).toBe("price: 4");
});

test("a copy that somebody changed stays when its manifest goes", async () => {
  const to = join(folder, "copy");
  write("models.yaml", "port: 9400");
  follow(to);
  fs.writeFileSync(join(to, "models.yaml"), "mine: 1");
  fs.rmSync(join(from, "models.yaml"));
  await vi.waitFor(() => expect(told.join()).toContain("models.yaml is no copy"));
  expect(read(join(to, "models.yaml"))).toBe("mine: 1");
});

test("what was copied before a copy that could not be written is known as a copy later", () => {
  const to = join(folder, "data", "copy");
  write("a.yaml", "port: 9400");
  write("b.yaml", "port: 9400");
  fs.mkdirSync(join(to, "b.yaml"), { recursive: true });
  expect(() => follow(to)).toThrow("b.yaml");
  expect(filesIn(to)).toContain("a.yaml");

  fs.rmdirSync(join(to, "b.yaml"));
  write("a.yaml", "port: 9400 # changed");
  follow(to);
  expect(told).toEqual([]);
  expect(read(join(to, "a.yaml"))).toBe("port: 1234 # changed");
});
