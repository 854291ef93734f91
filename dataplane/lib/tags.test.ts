import { describe, expect, test } from "vitest";
import { ApiError } from "./api-error.ts";
import { readTags, tagsOf } from "./tags.ts";

const refused = (text: string): string => {
  try {
    readTags(text, "x-gapura-tags");
  } catch (error) {
    if (error instanceof ApiError) return `${error.param}: ${error.message}`;
    throw error;
  }
  throw new Error(`${text} was taken`);
};

describe("rule 14.4: tags", () => {
  test("are the same text however they are written", () => {
    expect(readTags("team=ml, feature=search", "x-gapura-tags")).toBe("feature=search,team=ml");
    expect(readTags(" feature=search ,team=ml", "x-gapura-tags")).toBe("feature=search,team=ml");
    expect(tagsOf("feature=a=b,team=ml")).toEqual({ feature: "a=b", team: "ml" });
  });

  test("none are none", () => {
    expect(readTags("", "x-gapura-tags")).toBe("");
    expect(tagsOf("")).toEqual({});
  });

  test("keep a name that objects know for themselves", () => {
    expect(Object.entries(tagsOf("__proto__=a"))).toEqual([["__proto__", "a"]]);
  });

  const names = (count: number) => Array.from({ length: count }, (_, at) => `t${at}=x`).join(",");
  test("eight of 64 characters are taken, and no more", () => {
    expect(readTags(names(8), "x-gapura-tags").split(",")).toHaveLength(8);
    expect(readTags(`team=${"a".repeat(59)}`, "x-gapura-tags")).toHaveLength(64);
    expect(refused(names(9))).toContain("at most 8");
    expect(refused(`team=${"a".repeat(60)}`)).toContain("at most 64 characters");
  });

  test.each([
    "team",
    "=ml",
    "team=",
    "te am=ml",
    "team=ml,",
    "team=ml,team=x",
    "team=\u00e9",
    "te[am=ml",
    "team=\0",
  ])("%j is refused, and the error names the header", (text) => {
    expect(refused(text)).toMatch(/^x-gapura-tags: x-gapura-tags: /);
  });
});
