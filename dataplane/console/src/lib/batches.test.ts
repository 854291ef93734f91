import { expect, test } from "vitest";
import { pageOf, renewed, type BatchRow } from "./batches.ts";

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

/** A list of the service's that is read from its begin; `asked` has how many of it, each time. */
function served(all: readonly BatchRow[]) {
  const asked: number[] = [];
  const read = async (most: number) => {
    asked.push(most);
    return { after: "", rows: all.slice(0, most), isCut: all.length > most };
  };
  return { asked, read };
}
const hundred = Array.from({ length: 100 }, (_, index) => row(`batch_${index}`, 100 - index));
const held = (rows: readonly BatchRow[]) => ({ after: "", rows, isCut: false });
const running = (rows: readonly BatchRow[], ...indexes: readonly number[]) =>
  rows.map((one, index) => (indexes.includes(index) ? { ...one, isRunning: true } : one));

test("of batches that have ended only the newest are read again, and what is new stands before them", async () => {
  const fresh = [row("batch_new", 101), ...hundred];
  const { asked, read } = served(fresh);
  expect(await renewed(held(hundred), read)).toEqual(held(fresh));
  expect(asked).toEqual([20]);
});

test("batches are read again as far down as one of them runs", async () => {
  const { asked, read } = served(hundred);
  expect(await renewed(held(running(hundred, 3, 60)), read)).toEqual(held(hundred));
  expect(asked).toEqual([81]);
});

test("where what was read does not meet what was there, all of it is read", async () => {
  const fresh = [
    ...Array.from({ length: 30 }, (_, index) => row(`batch_new_${index}`, 200 - index)),
    ...hundred,
  ];
  const { asked, read } = served(fresh);
  expect(await renewed(held(hundred), read)).toEqual(held(fresh));
  expect(asked).toEqual([20, 2000]);
});

test("a short list is what was read of it: who deleted one does not see it again", async () => {
  const { asked, read } = served(hundred.slice(1, 4));
  expect(await renewed(held(hundred.slice(0, 4)), read)).toEqual(held(hundred.slice(1, 4)));
  expect(asked).toEqual([20]);
});

test("a list that grows past the most that a page shows is cut, and says so", async () => {
  const most = Array.from({ length: 2000 }, (_, index) => row(`batch_${index}`, 2000 - index));
  const { read } = served([row("batch_new", 2001), ...most]);
  const { rows, isCut } = await renewed(held(most), read);
  expect([rows.length, rows.at(0)?.id, rows.at(-1)?.id, isCut]).toEqual([
    2000,
    "batch_new",
    "batch_1998",
    true,
  ]);
});
