/** Reports of the longest kind: nobody else's request waits for one of them. */
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { expect, test } from "vitest";
import {
  DAYS,
  GROUPS,
  longAsked,
  longNow,
  longReports,
  longRows,
  poolOf,
} from "../../test/fakes/long-reports.ts";
import { leastOf } from "../../test/fakes/loop-turns.ts";
import { written } from "../../test/fakes/written-json.ts";
import { ANSWER_SLICE_MS } from "../lib/slices.ts";
import { costs } from "./costs.ts";

const rows = longRows();
const pool = poolOf(() => rows);

/** Work of this thread without a turn for others: milliseconds of its own time, as others share the machine. */
async function longestTurn(work: () => Promise<unknown>): Promise<number> {
  const spent = () => process.threadCpuUsage().user / 1_000;
  let longest = 0;
  let before = spent();
  const look = () => {
    longest = Math.max(longest, spent() - before);
    before = spent();
  };
  let isOver = false;
  const turn = () => {
    look();
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  await work();
  isOver = true;
  look();
  return longest;
}

test.each(Object.entries(longReports))(
  "others have their turns beside %s of 100,000 groups",
  { timeout: 180_000 },
  async (_, report) => {
    let text = "";
    const whole = async () => {
      text = await written(await report(pool), ANSWER_SLICE_MS);
    };
    const longest = await leastOf(100, () => longestTurn(whole));
    const shown = JSON.parse(text) as { data: { results: unknown[] }[]; results?: { credits: string }[] };
    expect(shown.data.map(({ results }) => results.length)).toEqual(Array(DAYS).fill(GROUPS / DAYS));
    const credits = (shown.results ?? []).map((one) => Number(one.credits));
    expect(credits).toEqual(credits.toSorted((one, other) => other - one));
    // What collects the garbage of it takes its time as well.
    expect(longest).toBeLessThan(100);
  },
);

test.each(Object.entries(longReports))(
  "%s is read in portions of days",
  { timeout: 60_000 },
  async (_, report) => {
    const counts: number[] = [];
    await report(
      poolOf(
        () => rows,
        (count) => counts.push(count),
      ),
    );
    expect(counts).toEqual(Array(DAYS).fill(GROUPS / DAYS));
  },
);

test("days with little in them are read together", async () => {
  const counts: number[] = [];
  const few = poolOf(
    () => rows.slice(0, DAYS),
    (count) => counts.push(count),
  );
  await costs(few, "org_a", { start_time: longAsked.start_time }, longNow);
  expect(counts).toEqual([1, DAYS - 1]);
});

test.each(Object.keys(longReports))(
  "%s of 100,000 groups needs no more of the heap than its sums, beside its bytes",
  { timeout: 180_000 },
  async (report) => {
    // Beside what this program's own code takes, some twenty.
    const heap = { maxOldGenerationSizeMb: 96, maxYoungGenerationSizeMb: 16 };
    const thread = new Worker(new URL("../../test/fakes/long-report-thread.ts", import.meta.url), {
      workerData: report,
      resourceLimits: heap,
    });
    const [bytes] = (await once(thread, "message")) as [number];
    expect(bytes).toBeGreaterThan(30_000_000);
  },
);

test("a report of costs has a bounded number of lines, however many its groups have, and says what to ask for", async () => {
  const manyLines = poolOf(() =>
    rows
      .slice(0, 75_001)
      .map((row) => ({ ...row, output_tokens: 1n, cache_read_tokens: 1n, cache_write_5m_tokens: 1n })),
  );
  const query = { start_time: longAsked.start_time, group_by: "line_item" };
  await expect(costs(manyLines, "org_a", query, longNow)).rejects.toMatchObject({
    message: "The report has more than 300000 lines; ask for fewer days, or for some models.",
    param: "start_time",
  });
  // Not shown line by line they are few.
  await expect(
    costs(manyLines, "org_a", { start_time: longAsked.start_time }, longNow),
  ).resolves.toBeDefined();
});
