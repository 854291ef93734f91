import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { nextRows } from "./migrate-backfill.ts";
import { lockTimeoutMs } from "./migrate-run.ts";
import { findPending, kindOf, readMigrations, SchemaMismatchError, type Migration } from "./migrate.ts";

const migration = (version: number, name = `000${version}_step`): Migration => ({
  version,
  name,
  sql: `select ${version}`,
  sha256: `digest of ${name}`,
});
const [first, second, third] = [migration(1), migration(2), migration(3)] as const;

describe("what is pending", () => {
  test("an empty database needs everything, in order", () => {
    expect(findPending([first, second], [])).toEqual([first, second]);
  });

  test("a database that is up to date needs nothing", () => {
    expect(findPending([first, second], [first, second])).toEqual([]);
  });

  test("an older database needs the rest", () => {
    expect(findPending([first, second, third], [first])).toEqual([second, third]);
  });

  test("a newer schema than the program knows is refused with both names", () => {
    expect(() => findPending([first], [first, second])).toThrow(SchemaMismatchError);
    expect(() => findPending([first], [first, second])).toThrow(/0002_step.*knows up to 0001_step/);
  });

  test("a schema that no release made is refused, with what to do", () => {
    expect(() => findPending([first], [{ ...first, name: "0001_other" }])).toThrow(
      /has 0001_other where this program has 0001_step.*empty database/,
    );
  });

  test("an applied file that was edited is refused", () => {
    expect(() => findPending([first], [{ ...first, sha256: "other" }])).toThrow(/was edited/);
  });
});

describe("reading the files", () => {
  const withFiles = (names: readonly string[], body: (folder: string) => void) => {
    const folder = mkdtempSync(join(tmpdir(), "gapura-migrations-"));
    for (const name of names) writeFileSync(join(folder, name), `select '${name}'`);
    try {
      body(folder);
    } finally {
      rmSync(folder, { recursive: true });
    }
  };

  test("files are read in the order of their numbers", () => {
    withFiles(["0002_b.sql", "0001_a.sql", "0010_c.sql"], (folder) => {
      expect(readMigrations(folder).map(({ version }) => version)).toEqual([1, 2, 10]);
    });
  });

  test("a file with another form of name is refused", () => {
    withFiles(["1_a.sql"], (folder) => expect(() => readMigrations(folder)).toThrow(/NNNN_name/));
  });

  test("a number used twice is refused", () => {
    withFiles(["0001_a.sql", "0001_b.sql"], (folder) => {
      expect(() => readMigrations(folder)).toThrow(/number of 0001_a/);
    });
  });

  test("the program's own migrations can be read", () => {
    expect(() => readMigrations()).not.toThrow();
  });
});

describe("how a file runs", () => {
  test("its first line says so", () => {
    expect(kindOf("create table x ()")).toBe("plain");
    expect(kindOf("-- Why.\n-- migrate: steps")).toBe("plain");
    expect(kindOf("-- migrate: concurrently\ncreate index …")).toBe("concurrently");
    expect(kindOf("-- migrate: steps\nwith …")).toBe("steps");
    expect(() => kindOf("-- migrate: quickly")).toThrow(/known are/);
  });

  test("no wait for a lock lasts a second", () => {
    expect([0, 1, 2, 3, 4, 59].map(lockTimeoutMs)).toEqual([100, 200, 400, 800, 800, 800]);
  });

  test("a step takes as many rows as fit its time, at most twice as many as before", () => {
    expect(nextRows(500, 10)).toBe(1_000);
    expect(nextRows(1_000, 150)).toBe(1_000);
    expect(nextRows(1_000, 600)).toBe(250);
    expect(nextRows(1, 10_000)).toBe(1);
    expect(nextRows(40_000, 10)).toBe(50_000);
  });
});
