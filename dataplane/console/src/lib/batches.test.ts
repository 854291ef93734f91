import { expect, test } from "vitest";
import { pageOf, type BatchRow } from "./batches.ts";

const row = (id: string, createdAt: number): BatchRow => ({
  id,
  kind: id.startsWith("msg") ? "messages" : "openai",
  status: "ended",
  isRunning: false,
  total: 1,
  succeeded: 1,
  failed: 0,
  createdAt,
  expiresAt: null,
  results: null,
  failures: null,
  refused: [],
});
const messages = [9, 8, 7, 2].map((hour) => row(`msgbatch_${hour}`, hour));
const others = [6, 5, 4, 3, 1].map((hour) => row(`batch_${hour}`, hour));
/** What comes of a list behind an id. */
const behind = (rows: readonly BatchRow[], after: string, most: number) => {
  const first = rows.findIndex(({ id }) => id === after) + 1;
  return { after, rows: rows.slice(first, first + most), isCut: first + most < rows.length };
};

test.each([1, 2, 3, 4, 5, 6])(
  "both kinds follow by their time, page after page, with %d of a kind",
  (most) => {
    const seen: string[] = [];
    let last: string | null = ",";
    for (let pages = 0; last !== null; pages += 1) {
      expect(pages).toBeLessThan(20);
      const [one = "", other = ""]: string[] = last.split(",");
      const page = pageOf([behind(messages, one, most), behind(others, other, most)]);
      expect(page.rows).not.toEqual([]);
      seen.push(...page.rows.map(({ id }) => id));
      ({ last } = page);
    }
    expect(seen).toEqual(
      [...messages, ...others]
        .toSorted((one, other) => Number(other.createdAt) - Number(one.createdAt))
        .map(({ id }) => id),
    );
  },
);

test("of batches of one moment none is left out between two pages", () => {
  const list = Array.from({ length: 5 }, (_, index) => row(`msgbatch_${index}`, 7));
  const page = pageOf([behind(list, "", 3), behind([row("batch_0", 7), row("batch_1", 6)], "", 3)]);
  expect(page.rows.map(({ id }) => id)).toEqual(["msgbatch_0", "msgbatch_1", "msgbatch_2", "batch_0"]);
  expect(page.last).toBe("msgbatch_2,batch_0");
});
