import { expect, test } from "vitest";
import { en } from "./en.ts";
import { formatBytes, formatTick } from "./texts.ts";

test("the lines of a chart are told as they are, in the page's own way of writing", () => {
  const quarters = [0.015, 0.03, 0.045, 0.00125, 1250, 3_750_000];
  expect(quarters.map((value) => formatTick(value, "en"))).toEqual([
    "0.015",
    "0.03",
    "0.045",
    "0.00125",
    "1.25K",
    "3.75M",
  ]);
  expect(formatTick(0.015, "id")).toBe("0,015");
});

test("bytes are told in the unit in which they are less than 1,024, as they are written", () => {
  const sizes = [0, 1, 1023, 1024, 1_048_524, 1_048_525, 2 ** 20, 2 ** 30 - 1, 10 * 2 ** 30, 2 ** 51];
  expect(sizes.map((bytes) => formatBytes(bytes, en))).toEqual([
    "0 B",
    "1 B",
    "1,023 B",
    "1.0 KiB",
    "1,023.9 KiB",
    "1.0 MiB",
    "1.0 MiB",
    "1.0 GiB",
    "10.0 GiB",
    "2,048.0 TiB",
  ]);
});

test("one of something is told in the singular", () => {
  const { limits, overview, files } = en;
  expect([
    limits.requestsAMinute("1"),
    limits.tokensAMinute("1"),
    overview.ofNewest("1"),
    overview.lasts("1"),
    files.bytes("1"),
  ]).toEqual(["1 request a minute", "1 token a minute", "Of the newest request", "About 1 day", "1 byte"]);
  expect([overview.lasts("0"), overview.lasts("1,000"), files.bytes("0")]).toEqual([
    "Less than a day",
    "About 1,000 days",
    "0 bytes",
  ]);
});

test("of errors it is told by whom they are, and of nobody that they had some where they had none", () => {
  const { faults } = en.overview;
  expect([faults("2", "1"), faults("2", "0"), faults("0", "3")]).toEqual([
    "2 by a model or the service, the others by the callers",
    "all by a model or the service",
    "all by the callers",
  ]);
});

test("a name that turns the order of letters turns no other word of its sentence", () => {
  const titles = ["night & <b>day</b>", "🚀", "مفتاح 7", "\u202eabc", "a\u2069\u202eb", "\u2067a"].map(
    (name) => en.keys.questions.delete.title(name),
  );
  expect(titles).toEqual([
    "Delete “night & <b>day</b>”?",
    "Delete “🚀”?",
    "Delete “\u2068مفتاح 7\u2069”?",
    "Delete “\u2068\u202eabc\u2069”?",
    "Delete “\u2068a\u202eb\u2069”?",
    "Delete “\u2068a\u2069”?",
  ]);
});
