import type { CommonQueryMethods } from "slonik";
import { expect, test } from "vitest";
import { resultLines } from "./results.ts";

test("while a page of custom_ids is written that hold nothing but ends of lines, others have turns", async () => {
  const customId = JSON.stringify("\u2028".repeat(21_000));
  const rows = Array.from({ length: 32 }, (_, number) => ({
    number,
    customId,
    requestId: `req_${number}`,
    state: "expired",
    line: null,
    lineBytes: 0,
  }));
  const pages = [rows, []];
  const db = { any: async () => pages.shift() } as unknown as CommonQueryMethods;
  const batch = { id: "msgbatch_1", form: "messages", total: rows.length, succeeded: 0 } as const;
  let turns = 0;
  let next = setImmediate(function count() {
    turns += 1;
    next = setImmediate(count);
  });
  const lines: Buffer[] = [];
  for await (const piece of resultLines(db, batch, "all")) lines.push(piece);
  clearImmediate(next);
  expect(turns).toBeGreaterThan(0);
  expect(Buffer.concat(lines).toString().split("\n")).toHaveLength(rows.length + 1);
});
