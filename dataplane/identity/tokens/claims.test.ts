import { describe, expect, test } from "vitest";
import type { IdentityRule } from "../../config/schema.ts";
import { audiencesOf, claimAt, nameIn, ruleFor } from "./claims.ts";
import { computedMs } from "../../../test/fakes/computed.ts";

describe("a claim by its name", () => {
  const claims = {
    groups: ["a", "b"],
    realm_access: { roles: ["x"], deep: { er: "y" } },
    "kubernetes.io": { namespace: "lab", serviceaccount: { name: "runner" } },
    "https://example.com/roles": ["z"],
    a: { b: { c: "short" } },
    "a.b": { c: "long" },
    list: [{ name: "inner" }],
    nothing: null,
  };
  test.each([
    ["groups", ["a", "b"]],
    ["realm_access.roles", ["x"]],
    ["realm_access.deep.er", "y"],
    ["kubernetes.io.namespace", "lab"],
    ["kubernetes.io.serviceaccount.name", "runner"],
    ["https://example.com/roles", ["z"]],
    ["a.b.c", "long"],
    ["list.name", undefined],
    ["list.0", undefined],
    ["nothing", null],
    ["nothing.more", undefined],
    ["groups.length", undefined],
    ["__proto__", undefined],
    ["constructor.name", undefined],
    [".groups", undefined],
    ["groups.", undefined],
    ["..", undefined],
  ])("%s", (name, value) => {
    expect(claimAt(claims, name)).toEqual(value);
  });
});

const rule = (claims: IdentityRule["claims"], project = "default"): IdentityRule => ({
  claims,
  role: "member",
  project,
});

test("claims made to be looked through for long cost no more than their size", () => {
  // 16 KiB of them, in which every way to cut the name leads on, against as many rules as may be declared.
  let left = 2_000;
  const grown = (depth: number): Record<string, unknown> => {
    const node: Record<string, unknown> = {};
    for (const key of ["a", "a.a", "a.a.a"]) {
      if (left <= 0 || depth > 60) break;
      left -= 1;
      node[key] = grown(depth + 1);
    }
    return node;
  };
  const claims = grown(0);
  const rules = Array.from({ length: 1_600 }, (_, n) => ({
    claims: { [`${"a.".repeat(125)}${n}`]: "x" },
    role: "admin" as const,
  }));
  const begun = computedMs();
  expect(ruleFor(rules, claims)).toBeUndefined();
  expect(computedMs() - begun).toBeLessThan(10_000);
});

describe("the first rule whose claims all match decides", () => {
  test.each([
    ["a text", { team: "ml" }, { team: "ml" }, true],
    ["another text", { team: "ml" }, { team: "ML" }, false],
    ["an item", { groups: "ml" }, { groups: ["ops", "ml"] }, true],
    ["no item", { groups: "ml" }, { groups: ["ml-ops"] }, false],
    ["a part of a text is none", { groups: "ml" }, { groups: "ops ml" }, false],
    ["a list in a list is none", { groups: "ml" }, { groups: [["ml"]] }, false],
    ["true", { email_verified: "true" }, { email_verified: true }, true],
    ["false is not true", { email_verified: "true" }, { email_verified: false }, false],
    ["a number", { level: "3" }, { level: 3 }, true],
    ["null is no text", { level: "null" }, { level: null }, false],
    ["an object is no text", { level: "[object Object]" }, { level: {} }, false],
    ["all of two", { a: "1", b: "2" }, { a: "1", b: "2" }, true],
    ["one of two", { a: "1", b: "2" }, { a: "1" }, false],
    ["none asked", {}, { a: "1" }, true],
    ["Unicode", { team: "Größe 日本" }, { team: ["Größe 日本"] }, true],
    ["composed is not decomposed", { team: "Zoë" }, { team: "Zoe\u0308" }, false],
    ["the empty text", { team: "" }, { team: "" }, true],
    ["the empty text is not absence", { team: "" }, {}, false],
    ["a name of every object", { toString: "x" }, {}, false],
  ])("%s", (_, wanted, claims, matches) => {
    expect(ruleFor([rule(wanted)], claims) !== undefined).toBe(matches);
  });

  test("not the best one", () => {
    const rules = [rule({ a: "1" }, "first"), rule({ a: "1", b: "2" }, "second"), rule({}, "third")];
    expect(ruleFor(rules, { a: "1", b: "2" })?.project).toBe("first");
    expect(ruleFor(rules, { b: "2" })?.project).toBe("third");
  });
});

test.each([
  ["gapura", true],
  [["other", "gapura"], true],
  ["gapura-2", false],
  [["other"], false],
  [[], false],
  [undefined, false],
  [{ gapura: true }, false],
  [[["gapura"]], false],
])("the audience %j", (aud, fits) => {
  expect(["gapura", "also"].some((one) => audiencesOf({ aud }).has(one))).toBe(fits);
});

test.each([
  [{ name: "Ada", email: "ada@example.com" }, "Ada"],
  [{ preferred_username: "ada", email: "ada@example.com" }, "ada"],
  [{ name: "", email: "ada@example.com" }, "ada@example.com"],
  [{ name: " \u200b\0", preferred_username: "\n", email: "ada@example.com" }, "ada@example.com"],
  [{ name: " " }, null],
  [{ name: " Ada\n" }, "Ada"],
  [{ name: ["Ada"] }, null],
  [{ name: `${"a".repeat(499)}🦩` }, "a".repeat(499)],
  [{ name: `${"a".repeat(498)}🦩 and more` }, `${"a".repeat(498)}🦩`],
  [{ name: "A\0d\ud800a" }, "Ad\ufffda"],
  [{}, null],
])("a name for the console: %j", (claims, name) => {
  expect(nameIn(claims)).toBe(name);
});
