/** What conversion costs beside relaying the same upstream's answers, in every cell, and what its open streams hold. */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { dialectPath, dialects, type Dialect } from "../../../dataplane/dialects/dialect.ts";
import { median, ratio, type Table } from "../figures.ts";
import { measure, type Measured, type Subject } from "../measure.ts";
import { EVENTS, type Mode } from "../payloads.ts";
import type { Bench, Outcome } from "./part.ts";

/** Goals of part 6: times Gapura's own relay of 1 kB JSON, microseconds an event, kB an open stream. */
const JSON_GOAL = 1.6;
const STREAM_GOAL_KB = 50;

/** The modes in which an upstream of a dialect answers. */
const modesOf: Readonly<Record<Dialect, { whole: Mode; events: Mode; open: Mode }>> = {
  messages: { whole: "whole", events: "messages", open: "open-messages" },
  chat: { whole: "json", events: "burst", open: "open" },
  responses: { whole: "response", events: "responses", open: "open-responses" },
};
const names: Readonly<Record<Dialect, string>> = {
  messages: "Messages",
  chat: "Chat",
  responses: "Responses",
};

interface Cell {
  readonly client: Dialect;
  readonly upstream: Dialect;
}
const cells = dialects.flatMap((upstream) => dialects.map((client): Cell => ({ client, upstream })));
const isRelay = ({ client, upstream }: Cell) => client === upstream;
const labelOf = (cell: Cell) =>
  isRelay(cell)
    ? `${names[cell.client]} relayed`
    : `${names[cell.client]} client, ${names[cell.upstream]} upstream`;

export async function convert({ contestants, quick, rounds, say }: Bench): Promise<Outcome> {
  const measureAll = (kind: "whole" | "events") => {
    const subjectOf = (cell: Cell): Subject => ({
      label: labelOf(cell),
      contestant: contestants.gapura,
      mode: modesOf[cell.upstream][kind],
      path: dialectPath[cell.client],
    });
    return measure(cells.map(subjectOf), rounds);
  };
  say("whole answers of nine cells");
  const json = await measureAll("whole");
  say("streams of nine cells");
  const streamed = await measureAll("events");
  if (!quick) codecsAlone();
  return {
    tables: [
      { title: `Conversion, JSON 1 kB (goal: ${JSON_GOAL} × relayed)`, ...rowsOf(json, false) },
      {
        title: `Conversion, ${EVENTS} events at once (goal: 1.3 µs more per event)`,
        ...rowsOf(streamed, true),
      },
      memoryTable(),
    ],
    charts: {
      "convert-json": {
        title: "Converted and relayed JSON, 1 kB",
        unit: "µs of CPU per request",
        bars: json.map(({ label, cpuMicros }) => ({ label, value: cpuMicros })),
        limit: { label: `goal: ${JSON_GOAL} × relayed`, value: JSON_GOAL * relayed(json) },
      },
    },
  };
}

/** What relaying costs, over the three dialects. */
const relayed = (measured: readonly Measured[]) =>
  median(cells.flatMap((cell, n) => (isRelay(cell) ? [measured[n]?.cpuMicros ?? Number.NaN] : [])));

/** A converted answer is compared with relaying the same upstream's. */
function rowsOf(measured: readonly Measured[], isStream: boolean): Pick<Table, "columns" | "rows"> {
  const costOf = (cell: Cell) => measured[cells.indexOf(cell)]?.cpuMicros ?? Number.NaN;
  const rows = cells.map((cell) => {
    const base = costOf(cells.find((one) => isRelay(one) && one.upstream === cell.upstream) ?? cell);
    const cost = costOf(cell);
    const perEvent = isStream && !isRelay(cell) ? ((cost - base) / EVENTS).toFixed(2) : "";
    return [labelOf(cell), cost.toFixed(0), ratio(cost, base), ...(isStream ? [perEvent] : [])];
  });
  return { columns: ["CPU of a request", "µs", "relayed", ...(isStream ? ["µs more per event"] : [])], rows };
}

/** Live memory in a process of its own for each cell: resident memory also counts what is not collected yet. */
function memoryTable(): Table {
  const script = join(import.meta.dirname, "../stream-heap.ts");
  const rows = cells.map((cell) => {
    const args = ["--expose-gc", script, cell.client, cell.upstream];
    const { stdout, status } = spawnSync(process.execPath, args, { encoding: "utf8" });
    return [labelOf(cell), status === 0 ? stdout.trim() : "failed"];
  });
  return {
    title: `Live memory of an open stream (goal: below ${STREAM_GOAL_KB} kB)`,
    columns: ["", "kB"],
    rows,
  };
}

/** On the core of the contestants. */
function codecsAlone(): void {
  console.log("\nThe codecs alone, JSON in and ready bytes out:");
  for (const name of ["answer-streams.ts", "whole-answers.ts"]) {
    const script = join(import.meta.dirname, "..", name);
    spawnSync("taskset", ["-c", "0", process.execPath, script], { stdio: "inherit" });
  }
}
