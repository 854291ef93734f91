import { describe, expect, test } from "vitest";
import { readNamespaces, readTenancy } from "./tenancy.ts";

describe("a tenancy is read", () => {
  test("with every namespace trusted where nothing is said, as charts leave variables empty", () => {
    const empty = { tenancy: "", platformNamespaces: "", quotaObjects: "", quotaBytes: "" };
    expect(readTenancy(empty, "gapura")).toEqual({
      mode: "Trusted",
      platformNamespaces: new Set(["gapura"]),
      quotas: { objects: 100, bytes: 262_144 },
    });
  });

  test("with what is said", () => {
    const settings = {
      tenancy: "Namespaced",
      platformNamespaces: " ml-platform,search ,",
      quotaObjects: "5",
      quotaBytes: "1Mi",
    };
    expect(readTenancy(settings, "gapura")).toEqual({
      mode: "Namespaced",
      platformNamespaces: new Set(["ml-platform", "search"]),
      quotas: { objects: 5, bytes: 1_048_576 },
    });
  });

  test.for([
    [{ tenancy: "namespaced" }, 'unknown tenancy "namespaced": it is one of Trusted, Namespaced'],
    [{ quotaObjects: "-1" }, 'the quota of objects is a whole number, with Ki, Mi or Gi behind it: not "-1"'],
    [{ quotaBytes: "1.5Mi" }, 'not "1.5Mi"'],
    [{ platformNamespaces: "ml, Search" }, 'the platform\'s namespaces: "Search" is not the name of one'],
  ] as const)("and refused by name: %j", ([settings, message]) => {
    expect(() => readTenancy(settings, "gapura")).toThrow(message);
  });
});

describe("a list of namespaces is read", () => {
  test("each of them once", () => {
    expect(readNamespaces("WATCH_NAMESPACES", " a, b-2 ,,a")).toEqual(["a", "b-2"]);
    expect(readNamespaces("WATCH_NAMESPACES", "")).toEqual([]);
  });

  test.each(["a b", "team;b", "*", "a/b", "-a", "a".repeat(64)])("and refused for %j", (name) => {
    expect(() => readNamespaces("WATCH_NAMESPACES", `c,${name}`)).toThrow(
      `WATCH_NAMESPACES: "${name}" is not the name of one: lower-case letters, digits and -, with commas between names`,
    );
  });
});
