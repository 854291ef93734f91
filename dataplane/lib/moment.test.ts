import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { DAY_MS } from "./clock.ts";
import { parseMoment } from "./moment.ts";

const at = (text: string) => Date.parse(text);

describe("rule 5.13: dates", () => {
  const good: [string, string][] = [
    ["2026-11-21T00:00:00Z", "2026-11-21T00:00:00Z"],
    ["2026-11-21t00:00:00z", "2026-11-21T00:00:00Z"],
    ["2026-11-21 08:09:10Z", "2026-11-21T08:09:10Z"],
    ["2026-11-21T07:00:00+07:00", "2026-11-21T00:00:00Z"],
    // A plus that was not escaped in the URL arrives as a blank.
    ["2026-11-21T07:00:00 07:00", "2026-11-21T00:00:00Z"],
    ["2026-11-21T07:00:00+0700", "2026-11-21T00:00:00Z"],
    ["2026-11-20T18:30:00-05:30", "2026-11-21T00:00:00Z"],
    // As Postgres prints a timestamptz.
    ["2026-11-21 07:00:00+07", "2026-11-21T00:00:00Z"],
    ["2026-11-20T19:00-05", "2026-11-21T00:00:00Z"],
    ["2026-11-21T00:00", "2026-11-21T00:00:00Z"],
    ["2026-11-21T00:00:00", "2026-11-21T00:00:00Z"],
    ["2026-11-21T00:00:00.123456Z", "2026-11-21T00:00:00.123Z"],
    ["2026-11-21", "2026-11-21T00:00:00Z"],
    ["2028-02-29", "2028-02-29T00:00:00Z"],
    ["1795219200", "2026-11-21T00:00:00Z"],
    ["0", "1970-01-01T00:00:00Z"],
  ];
  test.each(good)("%s is %s", (text, moment) => {
    expect(parseMoment(text)).toBe(at(moment));
  });

  const bad = [
    "2026-02-30",
    "2026-02-29",
    "2026-13-01",
    "2026-00-10",
    "2026-11-00",
    "2026-11-31T00:00:00Z",
    "2026-11-21T24:00:00Z",
    "2026-11-21T00:60:00Z",
    "2026-11-21T00:00:60Z",
    "2026-11-21T00:00:00+24:00",
    "2026-11-21T00:00:00+24",
    "2026-11-21T00:00:00+07:",
    "2026-11-21T00:00:00+00:60",
    "2026-11-21T00:00:00+7",
    "2026-11-21T",
    "2026-11-21Z",
    "2026-11",
    "26-11-21",
    "yesterday",
    "now",
    "-1",
    "1e9",
    "1795219200.5",
    "1795219200000",
    "999999999999",
    "99999-01-01",
    "1969-12-31",
    "0099-11-21",
    "0070-01-01T00:00:00Z",
    "'; drop table usage; --",
    "2026-11-21\0",
    " ",
  ];
  test.each(bad)("%j is none", (text) => {
    expect(parseMoment(text)).toBe(null);
  });

  test("every moment survives being written with every offset", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: DAY_MS / 1000, max: 4_000_000_000 }),
        fc.integer({ min: -14 * 60, max: 14 * 60 }),
        (seconds, minutes) => {
          const local = new Date((seconds + minutes * 60) * 1000).toISOString().slice(0, 19);
          const size = Math.abs(minutes);
          const pad = (value: number) => String(value).padStart(2, "0");
          const offset = `${minutes < 0 ? "-" : "+"}${pad(Math.floor(size / 60))}:${pad(size % 60)}`;
          expect(parseMoment(local + offset)).toBe(seconds * 1000);
          expect(parseMoment(String(seconds))).toBe(seconds * 1000);
        },
      ),
    );
  });
});
