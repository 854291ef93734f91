import { expect, test } from "vitest";
import { parseAuditQuery } from "./audit-log-command.ts";

test("without arguments: the newest hundred lines of everybody", () => {
  expect(parseAuditQuery([])).toEqual({ organizationId: null, keyId: null, since: null, limit: 100 });
});

test("every argument is read", () => {
  expect(
    parseAuditQuery([
      "--organization",
      "org_a",
      "--key",
      "apikey_1",
      "--since",
      "2026-11-21T00:00:00Z",
      "--limit",
      "7",
    ]),
  ).toEqual({
    organizationId: "org_a",
    keyId: "apikey_1",
    since: Date.parse("2026-11-21T00:00:00Z"),
    limit: 7,
  });
});

test("a moment without an offset is in UTC, wherever the command runs, and Unix seconds are one", () => {
  const read = ["2026-11-21 10:00", "1795255200"].map((since) => parseAuditQuery(["--since", since]).since);
  expect(read).toEqual([Date.parse("2026-11-21T10:00:00Z"), Date.parse("2026-11-21T10:00:00Z")]);
});

test.each([
  ["--since", "yesterday"],
  ["--since", "2026-02-30"],
  ["--since", "2026-11-21 12:00 PM"],
  ["--limit", "0"],
  ["--limit", "x"],
  ["--limit", "1000001"],
  ["--unknown", "1"],
])("%s %s is refused", (name, value) => {
  expect(() => parseAuditQuery([name, value])).toThrow(name);
});
