import { describe, expect, test } from "vitest";
import { ApiError } from "../lib/api-error.ts";
import { listEnvelope, pageOf, readListQuery } from "./list-query.ts";

const items = ["e", "d", "c", "b", "a"].map((id) => ({ id }));
const page = (query: Record<string, string>) => {
  const { data, hasMore } = pageOf(items, readListQuery(query), 20);
  return `${data.map(({ id }) => id).join("")}${hasMore ? "+" : ""}`;
};

describe("pages (dialects.md §A4, rule 5.6)", () => {
  test.each([
    [{}, "edcba"],
    [{ limit: "2" }, "ed+"],
    [{ limit: "5" }, "edcba"],
    [{ after: "d", limit: "2" }, "cb+"],
    [{ after_id: "d" }, "cba"],
    [{ after: "a" }, ""],
    [{ before_id: "c", limit: "1" }, "d+"],
    [{ before_id: "c", limit: "2" }, "ed"],
    [{ before_id: "e" }, ""],
    [{ order: "asc", limit: "2" }, "ab+"],
    [{ order: "asc", after: "b" }, "cde"],
    [{ page: Buffer.from("d").toString("base64url"), limit: "1" }, "c+"],
    [{ beta: "true" }, "edcba"],
  ])("%j is %s", (query, expected) => {
    expect(page(query as Record<string, string>)).toBe(expected);
  });

  test("following either cursor reaches every object once", () => {
    for (const cursor of ["after", "after_id", "page"]) {
      let query: Record<string, string> = { limit: "2" };
      let seen = "";
      for (;;) {
        const { data, hasMore } = pageOf(items, readListQuery(query), 20);
        const envelope = listEnvelope(data, hasMore);
        seen += data.map(({ id }) => id).join("");
        if (!hasMore) break;
        query = { limit: "2", [cursor]: String(envelope[cursor === "page" ? "next_page" : "last_id"]) };
      }
      expect(seen).toBe("edcba");
    }
  });

  test("an empty list has null ids and says that there is no more", () => {
    expect(listEnvelope([], false)).toEqual({
      object: "list",
      data: [],
      first_id: null,
      last_id: null,
      has_more: false,
      next_page: null,
    });
  });
});

describe("what is refused names its parameter (rule 4.15)", () => {
  test.each<[Record<string, unknown>, string]>([
    [{ limit: "0" }, "limit"],
    [{ limit: "10001" }, "limit"],
    [{ limit: "1001", after_id: "a" }, "limit"],
    [{ limit: "1.5" }, "limit"],
    [{ limit: "" }, "limit"],
    [{ limit: ["1", "2"] }, "limit"],
    [{ order: "up" }, "order"],
    [{ after: "a", after_id: "b" }, "after_id"],
    [{ after_id: "a", before_id: "b" }, "before_id"],
    [{ after: ["a", "b"] }, "after"],
    [{ after: "unknown" }, "after"],
    [{ before_id: "unknown" }, "before_id"],
    [{ page: "***" }, "page"],
  ])("%j", (query, param) => {
    let thrown: unknown;
    try {
      pageOf(items, readListQuery(query), 20);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(ApiError);
    expect(thrown).toMatchObject({ param, kind: { status: 400 } });
    expect((thrown as ApiError).message).toContain(param);
  });

  test("1,000 with an id cursor and 10,000 without one are fine", () => {
    expect(page({ limit: "1000", after_id: "b" })).toBe("a");
    expect(page({ limit: "10000", after: "b" })).toBe("a");
  });
});
