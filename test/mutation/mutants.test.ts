import { expect, test } from "vitest";
import { describeMutant, mutantsOf, withMutant } from "./mutants.ts";

const all = (code: string) => mutantsOf(code).map((mutant) => withMutant(code, mutant));

test("operators are turned", () => {
  expect(all("a < b")).toEqual(["a <= b"]);
  expect(all("a && b")).toEqual(["a || b"]);
  expect(all("(a /* + */) /* + */ + b")).toEqual(["(a /* + */) /* + */ - b"]);
  expect(all("a += b")).toEqual(["a -= b"]);
});

test("conditions are fixed, numbers counted up, booleans turned, calls left out", () => {
  expect(all("if (a) b = c")).toEqual(["if (true) b = c", "if (false) b = c"]);
  expect(all("x = [7, 1_000n, true]")).toEqual([
    "x = [8, 1_000n, true]",
    "x = [7, 1001n, true]",
    "x = [7, 1_000n, false]",
  ]);
  expect(all("async () => { await f(); }")).toEqual(["async () => { ; }"]);
});

test("types, imports and metrics are left alone", () => {
  expect(all('import { a } from "b"; type C = 1 | 2; const d: 3 = e as 4; metrics.a.inc();')).toEqual([]);
});

test("what is in a type assertion is code", () => {
  expect(all("x = (7 as number)!")).toEqual(["x = (8 as number)!"]);
});

test("a mutant is told with its place", () => {
  const code = "f(\n  a < b,\n)";
  const [mutant] = mutantsOf(code).filter(({ replacement }) => replacement === "<=");
  expect(mutant && describeMutant("x.ts", code, mutant)).toBe("x.ts:2: < -> <=   in: a < b,");
});
