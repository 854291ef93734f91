import { spawnSync } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { load, openStreams } from "../load.ts";
import { percentile } from "../figures.ts";
import { requestFor } from "../payloads.ts";
import { treeRssBytes } from "../proc.ts";
import type { Bar } from "../svg.ts";
import { mebibytes, millis, subjects, type Bench, type Outcome } from "./part.ts";

/** Descriptors of a proxy that are not streams: stores, files, listeners. */
const OTHER_DESCRIPTORS = 300;
/** For so long the streams stay open while others ask. */
const OPEN_MS = 6_000;
/** What a contestant did last is over by then. */
const SETTLE_MS = 2_000;

/** So many streams can a proxy have open with so many descriptors, two for each. */
export const streamsWithin = (descriptors: number, wanted: number) =>
  Math.min(wanted, Math.floor((descriptors - OTHER_DESCRIPTORS) / 2));

/** Memory of streams that stay open, and what a request costs beside them. */
export async function streams({ contestants, quick, say }: Bench): Promise<Outcome> {
  const wanted = quick ? 1_000 : 10_000;
  const descriptors = Number(spawnSync("sh", ["-c", "ulimit -n"], { encoding: "utf8" }).stdout);
  const count = streamsWithin(descriptors, wanted);
  const rows: string[][] = [];
  const bars: Bar[] = [];
  for (const { contestant } of subjects(contestants, "open")) {
    const before = treeRssBytes(contestant.pid);
    const request = requestFor({ path: contestant.path("open"), model: "open", stream: true });
    const open = await openStreams(contestant.port, request, count).catch((error: Error) => error);
    if (open instanceof Error) {
      // Said in the table: the others' figures are still worth having.
      rows.push([contestant.name, mebibytes(before), `failed: ${open.message.split("\r\n", 1)[0]}`]);
    } else {
      const after = treeRssBytes(contestant.pid);
      const json = requestFor({ path: contestant.path("json"), model: "json", stream: false });
      const { wholeMs } = await load({
        port: contestant.port,
        request: json,
        width: 1,
        ms: quick ? 1_000 : OPEN_MS,
      });
      const later = treeRssBytes(contestant.pid);
      open.close();
      say(`${count} open streams: ${contestant.name} takes ${mebibytes(later)} MiB`);
      const each = ((after - before) / count / 1024).toFixed(1);
      const beside = [percentile(wholeMs, 0.5), percentile(wholeMs, 0.99)].map(millis);
      rows.push([contestant.name, mebibytes(before), mebibytes(after), each, mebibytes(later), ...beside]);
      bars.push({
        label: contestant.name,
        value: later / 1024 / 1024,
        muted: contestant.name !== "Gapura",
      });
    }
    await sleep(SETTLE_MS);
  }
  const note = count < wanted ? `; ${descriptors} descriptors allow no more` : "";
  const seconds = `${(quick ? 1_000 : OPEN_MS) / 1_000} s later`;
  return {
    tables: [
      {
        title: `${count} open streams${note}: resident memory in MiB, and a JSON request beside them in ms`,
        columns: ["", "before", "with streams", "kB each", seconds, "JSON p50", "JSON p99"],
        rows,
      },
    ],
    charts: {
      streams: {
        title: `${count} open streams`,
        unit: "MiB",
        bars,
        limit: { label: "goal: 1 GiB", value: 1024 },
      },
    },
  };
}
