import fc from "fast-check";
import { expect, test } from "vitest";
import { written } from "../../test/fakes/written-json.ts";
import { MOST_LARGE_BYTES, type PageAsked } from "../store/list-page.ts";
import { listEnvelope, pageIn } from "./list-query.ts";
import { longPage } from "./long-page.ts";

const all = Array.from({ length: 1_700 }, (_, place) => ({ id: `id_${place}` }));
const there = new AbortController().signal;
const shown = ({ id }: { id: string }) => ({ id, name: "é" });

/** Reads from `all` as a store does: large columns of `bytes` each, cut where there is no room. */
const reading =
  (bytes: number, parts: PageAsked[] = []) =>
  (asked: PageAsked) => {
    parts.push(asked);
    const page = pageIn(all, asked);
    if (page === null) return Promise.resolve(null);
    const room = bytes === 0 ? Infinity : Math.ceil((asked.largeBytes ?? 0) / bytes);
    const items = asked.cursor?.side === "before" ? page.data.slice(-room) : page.data.slice(0, room);
    const hasMore = page.hasMore || items.length < page.data.length;
    return Promise.resolve({ items, hasMore, largeBytes: items.length * bytes });
  };
const pageOfAll = (asked: PageAsked, read = reading(0)) => longPage(asked, read, () => shown, there);

test("a page that is read in parts is the page that is read at once", async () => {
  const askedFor = fc.record({
    limit: fc.integer({ min: 1, max: 1_800 }),
    order: fc.constantFrom("asc" as const, "desc" as const),
    cursor: fc.option(
      fc.record({
        side: fc.constantFrom("after" as const, "before" as const),
        id: fc.integer({ min: 0, max: all.length }).map((place) => `id_${place}`),
      }),
    ),
  });
  await fc.assert(
    fc.asyncProperty(askedFor, async (asked) => {
      const [inParts, whole] = [await pageOfAll(asked), pageIn(all, asked)];
      expect(inParts === null).toBe(whole === null);
      if (inParts === null || whole === null) return;
      expect(await written(inParts)).toBe(await written(listEnvelope(whole.data, whole.hasMore, shown)));
    }),
  );
});

test("no part is of more than 500, and together they have the room of one page", async () => {
  const parts: PageAsked[] = [];
  const bytes = Math.floor(MOST_LARGE_BYTES / 1_200);
  const page = await pageOfAll({ limit: 1_600, order: "desc", cursor: null }, reading(bytes, parts));
  expect(parts.map(({ limit }) => limit)).toEqual([500, 500, 500]);
  expect(parts.map(({ largeBytes = 0 }) => MOST_LARGE_BYTES - largeBytes)).toEqual([
    0,
    500 * bytes,
    1_000 * bytes,
  ]);
  expect(page).toMatchObject({ first_id: "id_0", last_id: "id_1200", has_more: true });
});

test("a page ends where the cursor of its next part is gone, and says that there is more", async () => {
  const read = reading(0);
  const page = await pageOfAll({ limit: 1_600, order: "desc", cursor: null }, (asked) =>
    asked.cursor?.id === "id_999" ? Promise.resolve(null) : read(asked),
  );
  expect(page).toMatchObject({ first_id: "id_0", last_id: "id_999", has_more: true });
});

test("what is gone since its first part is no more to come", async () => {
  const read = reading(0);
  const page = await pageOfAll({ limit: 1_600, order: "desc", cursor: null }, (asked) =>
    asked.cursor === null ? read(asked) : Promise.resolve({ items: [], hasMore: false, largeBytes: 0 }),
  );
  expect(page).toMatchObject({ last_id: "id_499", has_more: false, next_page: null });
});

test("no part is read any more when nobody waits for the page", async () => {
  const parts: PageAsked[] = [];
  const gone = new AbortController();
  const read = (asked: PageAsked) => {
    gone.abort(new Error("gone"));
    return reading(0, parts)(asked);
  };
  const asked: PageAsked = { limit: 1_600, order: "desc", cursor: null };
  await expect(longPage(asked, read, () => shown, gone.signal)).rejects.toThrow("gone");
  expect(parts).toHaveLength(1);
});
