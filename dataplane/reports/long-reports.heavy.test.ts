/** Reports of the longest kind: nobody else's request waits for one of them. */
import type { CommonQueryMethods } from "slonik";
import { expect, test } from "vitest";
import { leastOf } from "../../test/fakes/loop-turns.ts";
import { DAY_MS } from "../lib/clock.ts";
import { jsonInSlices } from "../lib/json-slices.ts";
import { completionsUsage } from "./completions-usage.ts";
import { costReport } from "./cost-report.ts";
import { costs } from "./costs.ts";
import { messagesUsage } from "./messages-usage.ts";
import { REPORT_SLICE_MS } from "./sums.ts";

const GROUPS = 100_000;
const DAYS = 5;
const start = Date.parse("2026-03-01T00:00:00Z");

/** As the database tells them: of each day as many keys. */
const rows = Array.from({ length: GROUPS }, (_, place) => ({
  at: start + (place % DAYS) * DAY_MS,
  key_id: `apikey_${place}`,
  project_id: null,
  model: `model-${place}`,
  service_tier: "standard",
  context_tokens: null,
  batch: null,
  tag: null,
  requests: 1n,
  input_tokens: BigInt(place + 1),
  cache_read_tokens: 0n,
  cache_write_5m_tokens: 0n,
  cache_write_1h_tokens: 0n,
  output_tokens: 0n,
  web_searches: 0n,
  x_searches: 0n,
  input_micros: BigInt((place * 7_919) % GROUPS),
  output_micros: 0n,
  cost_micros: BigInt((place * 7_919) % GROUPS),
}));
const pool = { any: async () => rows, oneFirst: async () => start } as unknown as CommonQueryMethods;

const asked = { starting_at: "2026-03-01", start_time: "2026-03-01" };
const now = start + DAYS * DAY_MS;
const reports = {
  "usage of completions": () =>
    completionsUsage(pool, "org_a", { start_time: asked.start_time, group_by: "api_key_id" }, now),
  "usage of messages": () =>
    messagesUsage(pool, "org_a", { starting_at: asked.starting_at, group_by: "api_key_id" }, now),
  costs: () => costs(pool, "org_a", { start_time: asked.start_time, group_by: "line_item" }, now),
  "the cost report": () =>
    costReport(pool, "org_a", { starting_at: asked.starting_at, group_by: "description" }, now),
};

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

test.each(Object.entries(reports))(
  "others have their turns beside %s of 100,000 groups",
  { timeout: 180_000 },
  async (_, report) => {
    let text = "";
    const whole = async () => {
      text = (await jsonInSlices(await report(), REPORT_SLICE_MS)).toString();
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

test("a report of costs has a bounded number of lines, however many its groups have, and says what to ask for", async () => {
  const manyLines = {
    ...pool,
    any: async () =>
      rows
        .slice(0, 75_001)
        .map((row) => ({ ...row, output_tokens: 1n, cache_read_tokens: 1n, cache_write_5m_tokens: 1n })),
  };
  const query = { start_time: asked.start_time, group_by: "line_item" };
  await expect(costs(manyLines as CommonQueryMethods, "org_a", query, now)).rejects.toMatchObject({
    message: "The report has more than 300000 lines; ask for fewer days, or for some models.",
    param: "start_time",
  });
  // Not shown line by line they are few.
  await expect(
    costs(manyLines as CommonQueryMethods, "org_a", { start_time: asked.start_time }, now),
  ).resolves.toBeDefined();
});
