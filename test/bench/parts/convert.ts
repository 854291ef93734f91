/** What conversion costs beside relaying the same upstream's answers, in every cell, and what its open streams hold. */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { dialectPath, dialects, type Dialect } from "../../../dataplane/dialects/dialect.ts";
import { median, ratio, type Table } from "../figures.ts";
import { openStreams } from "../load.ts";
import { measure, type Measured, type Subject } from "../measure.ts";
import { EVENTS, requestFor, type Mode } from "../payloads.ts";
import { treeRssBytes } from "../proc.ts";
import type { World } from "../world.ts";
import type { Bench, Outcome } from "./part.ts";

/** Goals of part 6: times Gapura's own relay of 1 kB JSON, microseconds an event, kB an open stream. */
const JSON_GOAL = 1.6;
const STREAMS = { few: 200, many: 1_000 };

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

export async function convert({ world, contestants, quick, rounds, say }: Bench): Promise<Outcome> {
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
  say("open streams of nine cells");
  const memory = await memoryTable(world, quick ? STREAMS.few : STREAMS.many);
  if (!quick) codecsAlone();
  return {
    tables: [
      { title: `Conversion, JSON 1 kB (goal: ${JSON_GOAL} × relayed)`, ...rowsOf(json, false) },
      {
        title: `Conversion, ${EVENTS} events at once (goal: 1.3 µs more per event)`,
        ...rowsOf(streamed, true),
      },
      memory,
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

/** A process of its own for each cell: memory that a run has freed is not given back, and would hide the next one's. */
async function memoryTable(world: World, count: number): Promise<Table> {
  const rows: string[][] = [];
  for (const cell of cells) {
    const gapura = await world.gapura();
    try {
      const mode = modesOf[cell.upstream].open;
      const request = requestFor({ path: dialectPath[cell.client], model: mode, stream: true });
      // The first ones compile the code and fill the pools.
      (await openStreams(gapura.port, request, STREAMS.few / 2)).close();
      const before = treeRssBytes(gapura.pid);
      const open = await openStreams(gapura.port, request, count);
      const each = (treeRssBytes(gapura.pid) - before) / count / 1024;
      open.close();
      rows.push([labelOf(cell), each.toFixed(1)]);
    } catch (error) {
      // Said in the table: the others' figures are still worth having.
      const [reason = ""] = (error instanceof Error ? error.message : String(error)).split("\r\n", 1);
      rows.push([labelOf(cell), `failed: ${reason}`]);
    } finally {
      await gapura.stop();
    }
  }
  return { title: `Memory of ${count} open streams (goal: below 50 kB)`, columns: ["", "kB each"], rows };
}

/** On the core of the contestants. */
function codecsAlone(): void {
  console.log("\nThe codecs alone, JSON in and ready bytes out:");
  const script = join(import.meta.dirname, "../answer-streams.ts");
  spawnSync("taskset", ["-c", "0", process.execPath, script], { stdio: "inherit" });
}
