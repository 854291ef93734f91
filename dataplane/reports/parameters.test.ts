import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ApiError } from "../lib/api-error.ts";
import { DAY_MS, HOUR_MS } from "../lib/clock.ts";
import { readFilters, readTagFilter } from "./filters.ts";
import {
  readGroups,
  readList,
  readBucketPage,
  readRange,
  readWidth,
  type ReportQuery,
} from "./parameters.ts";

const now = Date.parse("2026-11-21T12:34:56.789Z");

const range = (query: ReportQuery, width: "1d" | "1h" = "1d") => {
  const { from, to } = readRange(query, ["starting_at", "ending_at"], width, now);
  return [from, to].map((ms) => new Date(ms).toISOString().slice(0, 16));
};

describe("rule 5.12: ranges", () => {
  const cases: [string, ReportQuery, "1d" | "1h", string[]][] = [
    ["the last seven days by default", {}, "1d", ["2026-11-14T00:00", "2026-11-22T00:00"]],
    ["hours too", {}, "1h", ["2026-11-14T12:00", "2026-11-21T13:00"]],
    [
      "an unaligned start snaps down",
      { starting_at: "2026-11-20T10:30:00Z" },
      "1d",
      ["2026-11-20T00:00", "2026-11-22T00:00"],
    ],
    [
      "the end is exclusive",
      { starting_at: "2026-11-01", ending_at: "2026-11-03" },
      "1d",
      ["2026-11-01T00:00", "2026-11-03T00:00"],
    ],
    [
      "offsets are honoured",
      { starting_at: "2026-11-02T00:00:00+07:00", ending_at: "2026-11-02T07:00:00+07:00" },
      "1d",
      ["2026-11-01T00:00", "2026-11-02T00:00"],
    ],
  ];
  test.each(cases)("%s", (_, query, width, expected) => {
    expect(range(query, width)).toEqual(expected);
  });

  const refused: [string, ReportQuery, string][] = [
    ["the end at the start", { starting_at: "2026-11-01", ending_at: "2026-11-01T00:00:00Z" }, "ending_at"],
    ["the end before the start", { starting_at: "2026-11-02", ending_at: "2026-11-01" }, "ending_at"],
    ["a start in the future", { starting_at: "2026-12-01" }, "starting_at"],
    ["an end before the default start", { ending_at: "2026-11-01" }, "ending_at"],
    ["no date", { starting_at: "soon" }, "starting_at"],
    ["30 February", { ending_at: "2027-02-30" }, "ending_at"],
    ["an empty start", { starting_at: "" }, "starting_at"],
    ["two starts", { starting_at: ["2026-11-01", "2026-11-02"] }, "starting_at"],
  ];
  test.each(refused)("rule 5.13: %s is a 400 that names the parameter", (_, query, param) => {
    expect(refusal(() => range(query))).toBe(param);
  });
});

/** The parameter that an ApiError names. */
function refusal(read: () => unknown): string | undefined {
  try {
    read();
  } catch (error) {
    expect(error).toBeInstanceOf(ApiError);
    const { param, message, kind } = error as ApiError;
    expect(kind.status).toBe(400);
    expect(message).toContain(param);
    return param;
  }
  throw new Error("it was not refused");
}

describe("pages", () => {
  const week = { from: 0, to: 7 * DAY_MS, widthMs: DAY_MS };
  const page = (query: ReportQuery) => {
    const { range: shown, hasMore, next } = readBucketPage(query, week, 1000);
    return [shown.from / DAY_MS, shown.to / DAY_MS, hasMore, next];
  };
  const cases: [ReportQuery, unknown[]][] = [
    [{}, [0, 7, false, null]],
    [{ limit: "3" }, [0, 3, true, 2]],
    [{ limit: "3", page: "2" }, [3, 6, true, 3]],
    [{ limit: "3", page: "3" }, [6, 7, false, null]],
    [{ limit: "7" }, [0, 7, false, null]],
    [{ limit: "3", page: "4" }, [7, 7, false, null]],
    [{ limit: "1000", page: "9007199254740991" }, [7, 7, false, null]],
  ];
  test.each(cases)("rule 5.13: %j", (query, expected) => {
    expect(page(query)).toEqual(expected);
  });

  test("20 buckets by default", () => {
    expect(readBucketPage({}, { ...week, to: 21 * DAY_MS }, 1000).range.to).toBe(20 * DAY_MS);
  });

  test.each(["0", "-1", "1001", "1.5", "x", "", " 1", "1e2", "0x1", "99999999999999999"])(
    "rule 5.13: limit %j is a 400",
    (limit) => {
      expect(refusal(() => page({ limit }))).toBe("limit");
    },
  );
  test.each(["0", "-1", "1.5", "x", "", "99999999999999999", "9007199254740993"])(
    "rule 5.13: page %j is a 400",
    (text) => {
      expect(refusal(() => page({ page: text }))).toBe("page");
    },
  );

  test("pages put together are the whole range, whatever the limit", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 400 }), fc.integer({ min: 1, max: 50 }), (count, limit) => {
        const whole = { from: 0, to: count * HOUR_MS, widthMs: HOUR_MS };
        let end = 0;
        for (let number: number | null = 1; number !== null;) {
          const shown = readBucketPage({ limit: String(limit), page: String(number) }, whole, 1000);
          expect(shown.range.from).toBe(end);
          expect(shown.hasMore).toBe(shown.next !== null);
          end = shown.range.to;
          number = shown.next;
        }
        expect(end).toBe(whole.to);
      }),
    );
  });
});

describe("lists", () => {
  const names = ["models", "model_ids"];
  const cases: [string, ReportQuery, string[] | null][] = [
    ["absent", {}, null],
    ["one", { models: "a" }, ["a"]],
    ["commas", { models: "a,b" }, ["a", "b"]],
    ["repeated", { models: ["a", "b"] }, ["a", "b"]],
    ["brackets", { "models[]": "a" }, ["a"]],
    ["brackets repeated", { "models[]": ["a", "b,c"] }, ["a", "b", "c"]],
    ["numbered brackets", { "models[0]": "a", "models[1]": "b,c" }, ["a", "b", "c"]],
    ["other brackets", { "models[a]": "a" }, null],
    ["an alias", { model_ids: "a" }, ["a"]],
    ["an alias with brackets", { "model_ids[]": "a" }, ["a"]],
    ["both at once", { models: "a", model_ids: "b" }, ["a", "b"]],
    ["blanks around commas", { models: "a, b" }, ["a", "b"]],
    ["__proto__", { models: "__proto__" }, ["__proto__"]],
  ];
  test.each(cases)("%s", (_, query, expected) => {
    expect(readList(query, names)).toEqual(expected);
  });
  test.each([{ models: "" }, { models: "a,,b" }, { models: ["a", ""] }, { models: "," }])(
    "an empty value is a 400: %j",
    (query) => {
      expect(refusal(() => readList(query, names))).toBe("models");
    },
  );
  test("more than a thousand values are a 400", () => {
    expect(refusal(() => readList({ "model_ids[]": "a,".repeat(1000) + "a" }, names))).toBe("model_ids[]");
  });

  test.each([["limits"], ["models[a]"], ["bucket_width[]"], ["model"], ["starting_at"], ["speeds[]"]])(
    "%s, which no such report knows, is a 400 that names it",
    (name) => {
      expect(refusal(() => readFilters({ [name]: "x" }, ["start_time", "end_time"]))).toBe(name);
    },
  );
  test("what a report knows in all its forms is read", () => {
    const query = {
      start_time: "1",
      "group_by[0]": "model",
      "project_ids[0]": "p",
      "tags[team]": "ml",
      beta: "true",
    };
    expect(readFilters(query, ["start_time", "end_time"])).toMatchObject({
      projectIds: ["p"],
      tag: { name: "team", value: "ml" },
    });
  });

  test("who writes the filter of a tag otherwise is told its form", () => {
    const ask = () => readFilters({ "tag[team]": "ml" }, ["start_time", "end_time"]);
    expect(refusal(ask)).toBe("tag[team]");
    expect(ask).toThrow(/Known are .*, tags\[NAME\]/);
  });

  test("rule 14.4: one tag filters", () => {
    expect(readTagFilter({ "tags[team]": "ml" })).toEqual({ name: "team", value: "ml" });
    expect(readTagFilter({ model: "x" })).toBe(null);
    expect(refusal(() => readTagFilter({ "tags[a]": "x", "tags[b]": "y" }))).toBe("tags[b]");
    expect(refusal(() => readTagFilter({ tags: "team=ml" }))).toBe("tags");
    for (const name of ["tags[]", "tags[a", "tags[a b]"])
      expect(refusal(() => readTagFilter({ [name]: "x" }))).toBe(name);
    for (const value of ["", ["a", "b"]])
      expect(refusal(() => readTagFilter({ "tags[a]": value }))).toBe("tags[a]");
  });

  test("groups are distinct and known", () => {
    expect(readGroups({ "group_by[]": ["model", "model,batch"] }, ["batch", "model"])).toEqual({
      groups: ["model", "batch"],
      tag: null,
    });
    expect(readGroups({ group_by: "tag:team,model,tag:team" }, ["model"])).toEqual({
      groups: ["model"],
      tag: "team",
    });
    for (const group of [
      "Model",
      "model;",
      "constructor",
      "__proto__",
      "hour",
      "organization_id",
      "tag:",
      "tag:a,tag:b",
    ]) {
      expect(refusal(() => readGroups({ group_by: group }, ["model"]))).toBe("group_by");
    }
  });

  test("widths", () => {
    expect(readWidth({}, ["1d", "1h"])).toBe("1d");
    expect(readWidth({ bucket_width: "1h" }, ["1d", "1h"])).toBe("1h");
    for (const width of ["1m", "", "1D", "day"]) {
      expect(refusal(() => readWidth({ bucket_width: width }, ["1d", "1h"]))).toBe("bucket_width");
    }
    expect(refusal(() => readWidth({ bucket_width: "1h" }, ["1d"]))).toBe("bucket_width");
  });
});

test("a range under the names of both families is taken, under the other family's alone refused", () => {
  const both: ReportQuery = { starting_at: "2026-11-01", start_time: "2026-11-01", end_time: "2026-11-02" };
  expect(refusal(() => readFilters(both, ["starting_at", "ending_at"]))).toBe("end_time");
  expect(readFilters({ ...both, ending_at: "2026-11-02" }, ["starting_at", "ending_at"]).models).toBe(null);
});
