import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { pino } from "pino";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import {
  slotFiles,
  sampleCredentials,
  sampleRoute,
  sampleRouting,
  sha256,
  writeFiles,
} from "../../test/fakes/sample-snapshot.ts";
import { SnapshotLoader } from "./load.ts";
import type { Slot } from "./schema.ts";
import { PendingSerials } from "./pending-serials.ts";

let directory: string;
let loader: SnapshotLoader;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "gapura-config-"));
  loader = new SnapshotLoader(directory, pino({ level: "silent" }));
});
afterEach(async () => {
  await loader.stop();
  await rm(directory, { recursive: true, force: true });
});

const publish = (slot: Slot, serial: number, values: Record<string, string> = {}) =>
  writeFiles(directory, slotFiles(slot, sampleRouting(serial), sampleCredentials(serial, values)));
const serial = () => loader.current?.index.serial ?? null;

describe("choosing", () => {
  test("an empty directory has nothing to serve", async () => {
    await loader.look();
    expect([loader.current, loader.rejected]).toEqual([null, null]);
  });

  test("a directory that is not there is waited for", async () => {
    await rm(directory, { recursive: true });
    await loader.look();
    expect(serial()).toBe(null);
    await publish("a", 5);
    await loader.look();
    expect(serial()).toBe(5);
  });

  test("the newest complete serial of the two slots is served", async () => {
    await publish("a", 7);
    await publish("b", 6);
    await loader.look();
    expect(serial()).toBe(7);
    await publish("b", 8);
    await loader.look();
    expect(serial()).toBe(8);
  });

  test("an older serial never replaces a newer one", async () => {
    await publish("a", 7);
    await loader.look();
    await writeFiles(directory, slotFiles("a", sampleRouting(3)));
    await publish("b", 4);
    await loader.look();
    expect(serial()).toBe(7);
  });

  test("a part cut into pieces is put together again", async () => {
    const routes = Array.from({ length: 300 }, (_, n) => sampleRoute(`model-${n}`));
    await writeFiles(directory, slotFiles("a", sampleRouting(2, { routes }), sampleCredentials(2), 1500));
    await loader.look();
    expect(loader.current?.route("model-299")?.model).toBe("model-299");
  });
});

describe("half-way and damaged (rule 6.3)", () => {
  test("a mount with only some pieces updated is pending, credentials included", async () => {
    await publish("a", 1, { "default/s/key": "old" });
    await loader.look();
    const next = slotFiles("a", sampleRouting(2), sampleCredentials(2, { "default/s/key": "new" }));
    const arriving = new Map(next);
    for (const order of [["a-index.json"], ["a-0.gz"]]) {
      for (const name of order) await writeFiles(directory, [[name, arriving.get(name)!]]);
      await loader.look();
      expect([serial(), loader.current?.credential("default/s/key"), loader.rejected]).toEqual([
        1,
        "old",
        null,
      ]);
    }
    await writeFiles(directory, next);
    await loader.look();
    expect([serial(), loader.current?.credential("default/s/key")]).toEqual([2, "new"]);
  });

  test("a piece that keeps the wrong digest is told after a while, and the serial is served once it is mended", async () => {
    await loader.stop();
    loader = new SnapshotLoader(directory, pino({ level: "silent" }), new PendingSerials(300));
    await publish("a", 5);
    await loader.look();
    const files = slotFiles("b", sampleRouting(6));
    await writeFiles(directory, files);
    await writeFile(join(directory, "b-0.gz"), "not what the index names");
    await loader.look();
    expect([serial(), loader.rejected]).toEqual([5, null]);
    await sleep(310);
    const error = "not complete: b-0.gz does not have the digest that the index names";
    expect(loader.rejected).toEqual({ serial: 6, error });
    await loader.look();
    expect([serial(), loader.rejected]).toEqual([5, { serial: 6, error }]);
    await writeFiles(directory, files);
    await loader.look();
    expect([serial(), loader.rejected]).toEqual([6, null]);
  });

  test("a damaged index is told until it is mended, also when its serial is older than the one served", async () => {
    await publish("b", 4);
    await publish("a", 5);
    await loader.look();
    await writeFile(join(directory, "b-index.json"), "{");
    await loader.look();
    expect([serial(), loader.rejected?.serial]).toEqual([5, null]);
    await publish("b", 4);
    await loader.look();
    expect([serial(), loader.rejected]).toEqual([5, null]);
    // The same for the slot that is served.
    await writeFile(join(directory, "a-index.json"), "{}");
    await loader.look();
    expect(loader.rejected).not.toBe(null);
    await publish("a", 5);
    await loader.look();
    expect([serial(), loader.rejected]).toEqual([5, null]);
  });

  test("routing and credentials of different serials are never served together", async () => {
    await writeFiles(directory, slotFiles("a", sampleRouting(2), sampleCredentials(1)));
    await loader.look();
    expect(serial()).toBe(null);
    expect(loader.rejected).toMatchObject({ serial: 2, error: expect.stringContaining("serials 2, 2, 1") });
  });

  test("an emptied directory leaves the running snapshot", async () => {
    await publish("a", 1);
    await loader.look();
    await rm(directory, { recursive: true });
    await loader.look();
    await mkdir(directory);
    await loader.look();
    expect([serial(), loader.rejected]).toEqual([1, null]);
  });

  test("a starting process falls back to the other slot when the newer one is bad", async () => {
    await publish("a", 1);
    const bad = sampleRouting(2, { routes: [{ ...sampleRoute("alpha"), upstreams: [] }] });
    await writeFiles(directory, slotFiles("b", bad));
    await loader.look();
    expect(serial()).toBe(1);
    expect(loader.rejected).toMatchObject({
      serial: 2,
      error: expect.stringContaining("routing.routes.0.upstreams"),
    });
    await publish("b", 3);
    await loader.look();
    expect([serial(), loader.rejected]).toEqual([3, null]);
  });

  const index = (over: object) => {
    const files = slotFiles("b", sampleRouting(9));
    const text = files.at(-1)![1].toString();
    return [
      ...files.slice(0, -1),
      ["b-index.json", Buffer.from(JSON.stringify({ ...JSON.parse(text), ...over }))],
    ];
  };
  const piece = (name: string, bytes: Buffer) => [{ file: name, sha256: sha256(bytes) }];
  const notJson = gzipSync("{");
  const cases: [string, unknown[], unknown][] = [
    ["an index that is not JSON", [["b-index.json", Buffer.from("{")]], { serial: null }],
    ["an index of another shape", [["b-index.json", Buffer.from("{}")]], { serial: null }],
    ["a schema version from the future", index({ schemaVersion: 99 }), { serial: 9 }],
    [
      "a part that is not gzipped",
      [...index({ routing: piece("b-0.gz", Buffer.from("x")) }), ["b-0.gz", Buffer.from("x")]],
      { serial: 9 },
    ],
    [
      "a part that is not JSON",
      [...index({ routing: piece("b-0.gz", notJson) }), ["b-0.gz", notJson]],
      { serial: 9 },
    ],
    [
      "an index that names a file outside its slot",
      index({ routing: piece("../b-0.gz", notJson) }),
      { serial: 9 },
    ],
    [
      "an index that names a file of the other slot",
      index({ routing: piece("a-0.gz", notJson) }),
      { serial: 9 },
    ],
  ];
  test.each(cases)(
    "%s is rejected and reported, and the running snapshot stays",
    async (_, files, rejection) => {
      await publish("a", 1);
      await loader.look();
      await writeFiles(directory, files as [string, Buffer][]);
      await loader.look();
      expect(serial()).toBe(1);
      expect(loader.rejected).toMatchObject(rejection as object);
    },
  );

  test("a fault in the credentials never shows what is in them", async () => {
    const credentials = { serial: 1, values: { id: ["very-secret"] } } as unknown as ReturnType<
      typeof sampleCredentials
    >;
    await writeFiles(directory, slotFiles("a", sampleRouting(1), credentials));
    await loader.look();
    expect(loader.rejected?.error).toBe("the credentials part is not valid");
  });
});

describe("watching", () => {
  test("a renamed-in publication is served well under a second later", async () => {
    await loader.start();
    const seen: number[] = [];
    loader.subscribe((snapshot) => seen.push(snapshot.index.serial));
    await publish("a", 1);
    await vi.waitFor(() => expect(seen).toEqual([1]), { timeout: 800, interval: 10 });
    await publish("b", 2);
    await vi.waitFor(() => expect(seen).toEqual([1, 2]), { timeout: 800, interval: 10 });
  });

  test("a kubelet's symlink swap is served as one view", async () => {
    const mount = async (name: string, n: number) => {
      await writeFiles(join(directory, name), slotFiles("a", sampleRouting(n)));
      await symlink(name, join(directory, "..data_tmp"));
      await rename(join(directory, "..data_tmp"), join(directory, "..data"));
    };
    await mount("..1", 1);
    for (const [file] of slotFiles("a", sampleRouting(1))) {
      await symlink(join("..data", file), join(directory, file));
    }
    await loader.start();
    expect(serial()).toBe(1);
    await mount("..2", 2);
    await vi.waitFor(() => expect(serial()).toBe(2), { timeout: 800, interval: 10 });
    // The kubelet then removes the old view.
    await rm(join(directory, "..1"), { recursive: true });
    await loader.look();
    expect(serial()).toBe(2);
  });

  test("a directory that is replaced as a whole is still followed", async () => {
    await loader.start();
    await rm(directory, { recursive: true });
    await publish("a", 4);
    await vi.waitFor(() => expect(serial()).toBe(4), { timeout: 3000, interval: 20 });
    await writeFile(join(directory, "unrelated"), "x");
    await publish("b", 5);
    await vi.waitFor(() => expect(serial()).toBe(5), { timeout: 3000, interval: 20 });
  });

  test("a listener that fails does not stop the others", async () => {
    const seen: number[] = [];
    loader.subscribe(() => {
      throw new Error("mine");
    });
    loader.subscribe((snapshot) => seen.push(snapshot.index.serial));
    await publish("a", 1);
    await loader.look();
    expect(seen).toEqual([1]);
  });
});
