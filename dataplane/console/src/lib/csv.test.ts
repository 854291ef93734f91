import { expect, test } from "vitest";
import { csv, csvCell } from "./csv.ts";

test.for([
  ["=1+1", "'=1+1"],
  ["+cmd", "'+cmd"],
  ["-cmd", "'-cmd"],
  ["@sum", "'@sum"],
  ["\tx", "'\tx"],
  ["-12.5", "-12.5"],
  ["plain", "plain"],
  ['a "b", c', '"a ""b"", c"'],
  ['=a,"b"', '"\'=a,""b"""'],
])("%j is written as %j", ([given = "", written]) => {
  expect(csvCell(given)).toBe(written);
});

test("rows end as RFC 4180 has it", () => {
  expect(
    csv([
      ["a", "b"],
      ["1", "2"],
    ]),
  ).toBe("a,b\r\n1,2\r\n");
});
