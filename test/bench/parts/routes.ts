import { median, ratio, type Table } from "../figures.ts";
import { load } from "../load.ts";
import { Manifests } from "../manifests.ts";
import { measure } from "../measure.ts";
import { requestFor } from "../payloads.ts";
import { treeRssBytes } from "../proc.ts";
import { mebibytes, micros, spread, type Bench, type Outcome } from "./part.ts";

const OTHER_ROUTES = 10_000;
/** Edits before the first one that counts: the compiler has to see the way once. */
const COLD_EDITS = 3;

/** The same request with few and with 10,000 routes, and how long a change of one takes to be served. */
export async function routes(bench: Bench): Promise<Outcome> {
  const published = await ofSnapshots(bench);
  const edited = await ofManifests(bench);
  return {
    tables: [published.table, edited.table],
    charts: {
      reload: {
        title: "From a change of one route to serving it, median",
        unit: "ms",
        bars: [...published.bars, { label: `${OTHER_ROUTES} from YAML`, value: median(edited.tookMs) }],
        limit: { label: "goal: 1 s", value: 1_000 },
      },
    },
  };
}

/** The data plane alone: from a published snapshot to serving it, with a request under way all the time. */
async function ofSnapshots({ contestants: { gapura }, quick, rounds, say }: Bench) {
  const samples = [0, OTHER_ROUTES].map((others) => ({
    others,
    cpu: [] as number[],
    reload: [] as number[],
    longest: [] as number[],
    rss: 0,
  }));
  const request = requestFor({ path: gapura.path("json"), model: "json", stream: false });
  for (let round = 0; round < (quick ? 1 : 3); round += 1) {
    for (const sample of samples) {
      await gapura.publish(sample.others, `round ${round}`);
      for (let edit = 0; edit < COLD_EDITS; edit += 1) {
        const asking = load({ port: gapura.port, request, width: 1, ms: 1_000 });
        sample.reload.push(await gapura.publish(sample.others, `round ${round}, edit ${edit}`));
        sample.longest.push(Math.max(...(await asking).wholeMs));
      }
      // What a reload leaves behind is collected before anything is measured.
      const subject = { label: "Gapura", contestant: gapura, mode: "json" } as const;
      const [measured] = await measure([subject], { ...rounds, rounds: 2 });
      if (measured !== undefined) sample.cpu.push(measured.cpuMicros);
      sample.rss = treeRssBytes(gapura.pid);
      say(`${sample.others + 7} routes: a change was served after ${spread(sample.reload)[0]} ms (median)`);
    }
  }
  await gapura.publish(0, "last");
  const base = median(samples[0]?.cpu ?? []);
  const table: Table = {
    title: "Routes: a change of one of them, published as a snapshot",
    columns: [
      "routes",
      "JSON 1 kB, µs of CPU",
      "ratio",
      "to served, ms (median)",
      "worst",
      "longest answer meanwhile, ms (median)",
      "RSS, MiB",
    ],
    rows: samples.map(({ others, cpu, reload, longest, rss }) => [
      String(others + 7),
      micros(median(cpu)),
      ratio(median(cpu), base),
      ...spread(reload),
      median(longest).toFixed(1),
      mebibytes(rss),
    ]),
  };
  const bars = samples.map(({ others, reload }) => ({
    label: `${others + 7} routes`,
    value: median(reload),
  }));
  return { table, bars };
}

/** The whole way on one machine: a manifest is saved, the operator compiles the folder, the data plane serves it. */
async function ofManifests({ world, quick, say }: Bench) {
  await using manifests = await Manifests.open(world, OTHER_ROUTES);
  const tookMs: number[] = [];
  for (let edit = -COLD_EDITS; edit < (quick ? 3 : 10); edit += 1) {
    const took = await manifests.edit(`edit ${edit}`);
    if (edit >= 0) tookMs.push(took);
  }
  say(`${OTHER_ROUTES} routes in YAML: an edit was served after ${spread(tookMs)[0]} ms (median)`);
  const table: Table = {
    title: `${OTHER_ROUTES} routes in ${manifests.files} files: one is edited, operator and data plane follow`,
    columns: ["", "saved to served, ms (median)", "worst"],
    rows: [["one machine", ...spread(tookMs)]],
  };
  return { table, tookMs };
}
