import { describe, expect, test } from "vitest";
import { nextAction, partIndexName, readOnline, type Part } from "./migrate-online.ts";

const index = readOnline("create index concurrently by_model on usage (model) where x > 0")[0]!;
const check = readOnline("alter table usage validate constraint positive")[0]!;
const part = (table: string, more: Partial<Part> = {}): Part => ({
  table,
  root: false,
  partitioned: false,
  state: "absent",
  attached: false,
  ...more,
});
const whole = (more: Partial<Part> = {}) => part("usage", { root: true, partitioned: true, ...more });

describe("what a file may hold", () => {
  test("indexes and checks, with comments between them", () => {
    const sql = `-- migrate: concurrently
      -- Why.
      create unique index concurrently one on a (x, y) include (z);
      CREATE INDEX CONCURRENTLY two ON b USING gin (z);
      alter table a validate constraint c;`;
    expect(readOnline(sql)).toEqual([
      { kind: "index", unique: true, name: "one", table: "a", rest: "(x, y) include (z)" },
      { kind: "index", unique: false, name: "two", table: "b", rest: "USING gin (z)" },
      { kind: "validate", table: "a", name: "c" },
    ]);
  });

  test.each(["create index one on a (x)", "update a set x = 1", "create index concurrently on a (x)"])(
    "not %s",
    (sql) => expect(() => readOnline(sql)).toThrow(/neither create/),
  );
});

describe("an index of a table", () => {
  const next = (state: Part["state"]) => nextAction(index, [part("usage", { root: true, state })]);

  test("is made, waited for while somebody builds it, and dropped when it was left invalid", () => {
    expect(next("absent")).toEqual({
      kind: "online",
      sql: "create index concurrently if not exists by_model on usage (model) where x > 0",
    });
    expect(next("building")).toEqual({ kind: "wait" });
    expect(next("invalid")).toEqual({ kind: "online", sql: "drop index concurrently by_model" });
    expect(next("valid")).toBeNull();
  });
});

describe("an index of a table with partitions", () => {
  test("begins with the table's own, so that new partitions have it", () => {
    expect(nextAction(index, [whole(), part("usage_1")])).toEqual({
      kind: "brief",
      sql: "create index by_model on only usage (model) where x > 0",
    });
  });

  test("is made for each partition, and joined when it is valid", () => {
    const parts = (one: Partial<Part>) => [
      whole({ state: "invalid" }),
      part("usage_1", one),
      part("usage_2", { attached: true }),
    ];
    expect(nextAction(index, parts({}))).toEqual({
      kind: "online",
      sql: "create index concurrently if not exists usage_1_by_model on usage_1 (model) where x > 0",
    });
    expect(nextAction(index, parts({ state: "invalid" }))).toEqual({
      kind: "online",
      sql: "drop index concurrently usage_1_by_model",
    });
    expect(nextAction(index, parts({ state: "valid" }))).toEqual({
      kind: "brief",
      sql: "alter index by_model attach partition usage_1_by_model",
    });
    expect(() => nextAction(index, parts({ attached: true }))).toThrow(/is not valid/);
  });

  test("is done when all have it", () => {
    expect(nextAction(index, [whole({ state: "valid" }), part("usage_1", { attached: true })])).toBeNull();
  });

  test("is not made for partitions of partitions, or under a name that Postgres would cut", () => {
    expect(() => nextAction(index, [whole(), part("usage_1", { partitioned: true })])).toThrow(
      /partitions of its own/,
    );
    expect(() => partIndexName("usage_2026_11", "x".repeat(50))).toThrow(/shorter name/);
  });
});

describe("a check", () => {
  test("is validated partition by partition, then as a whole", () => {
    const parts = (whole_: Part["state"], one: Part["state"]) => [
      whole({ state: whole_ }),
      part("usage_1", { state: one }),
      part("usage_2", { state: "valid" }),
    ];
    expect(nextAction(check, parts("invalid", "invalid"))).toEqual({
      kind: "online",
      sql: "alter table usage_1 validate constraint positive",
    });
    expect(nextAction(check, parts("invalid", "valid"))).toEqual({
      kind: "online",
      sql: "alter table usage validate constraint positive",
    });
    expect(nextAction(check, parts("valid", "valid"))).toBeNull();
  });

  test("that is not there is an error", () => {
    expect(() => nextAction(check, [whole()])).toThrow(/no constraint positive/);
    expect(() => nextAction(check, [])).toThrow(/no table usage/);
  });
});
