/**
 * Batches of the real data plane beside the upstream alone: how long 10,000 requests of one kilobyte take to be
 * stored, what working on one costs, whether two batches share fairly, what live requests feel meanwhile, and how
 * much memory a body of 256 MiB takes. `npm run bench -- batches`, or some of its sections:
 * `node hack/ensure.mjs test/bench/batches.ts liveBeside largeBody`
 */
import { setTimeout as sleep } from "node:timers/promises";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { BatchClient, bodyPieces, messagesBody } from "./batch-client.ts";
import { percentile, ratio, renderTable } from "./figures.ts";
import { load } from "./load.ts";
import { requestFor } from "./payloads.ts";
import { treeCpuMicros, treeRssBytes } from "./proc.ts";
import { World } from "./world.ts";

const ITEMS = 10_000;
/** As many at once as a data plane runs of one organization. */
const WIDTH = 56;
const LIVE_ROUND_MS = 5_000;
const LIVE_ROUNDS = 3;
const LARGE_BYTES = 256 * 1024 * 1024;
const WATCH_MS = 50;

const seconds = (ms: number) => (ms / 1000).toFixed(2);
const mebibytes = (bytes: number) => Math.round(bytes / 1024 / 1024).toString();

await using world = await World.open();
const { port, pid } = await world.gapura();
const acme = new BatchClient(port, sampleKeys.inference);
const other = new BatchClient(port, sampleKeys.narrow);
const wanted = process.argv.slice(2);
for (const section of [workOff, sideBySide, later, liveBeside, largeBody])
  if (wanted.length === 0 || wanted.includes(section.name)) await section();

/** Enqueueing and working off, beside the upstream alone and beside live requests of the same kind. */
async function workOff(): Promise<void> {
  const upstream = { port: world.upstreamPort, path: "/whole" };
  const rateOf = async (to: { readonly port: number; readonly path: string }, ms: number) => {
    const request = requestFor({ path: to.path, model: "whole", stream: false });
    const from = treeCpuMicros(pid);
    const { requests, ms: took } = await load({ port: to.port, request, width: WIDTH, ms });
    return { perSecond: (requests * 1000) / took, micros: (treeCpuMicros(pid) - from) / requests };
  };
  const alone = await rateOf(upstream, 3_000);
  // The compiler needs some thousand requests before it has seen everything.
  const live = { port, path: "/v1/messages" };
  await rateOf(live, 4_000);
  const relayed = await rateOf(live, 3_000);
  await acme.ended(await acme.createMessages(messagesBody(ITEMS / 5)));

  const body = messagesBody(ITEMS);
  const created = performance.now();
  const id = await acme.createMessages(body);
  const started = performance.now();
  const from = treeCpuMicros(pid);
  await acme.ended(id);
  const endedAt = performance.now();
  const items = {
    perSecond: (ITEMS * 1000) / (endedAt - started),
    micros: (treeCpuMicros(pid) - from) / ITEMS,
  };
  if ((await acme.results(id)) !== ITEMS) throw new Error("results are missing");
  const readMs = performance.now() - endedAt;

  const row = (name: string, { perSecond, micros }: typeof items) => [
    name,
    perSecond.toFixed(0),
    ratio(perSecond, alone.perSecond),
    micros.toFixed(0),
    (1e6 / micros).toFixed(0),
  ];
  const columns = ["", "a second", "upstream alone", "CPU, µs", "a second and core"];
  const [name = "", rate = ""] = row("the upstream alone", alone);
  const rows = [[name, rate], row("live requests", relayed), row("batch items", items)];
  print("Requests of 1 kB", columns, rows);
  const times = [
    ["enqueue (goal: 2)", seconds(started - created)],
    ["work", seconds(endedAt - started)],
    ["read the results", seconds(readMs)],
  ];
  print(`${ITEMS} items`, ["", "s"], times);
}

/** Two equal batches, made one after the other: how far the one is when the other ends. */
async function sideBySide(): Promise<void> {
  const rows: string[][] = [];
  for (const [name, client] of [
    ["of two organizations", other],
    ["of one organization", acme],
  ] as const) {
    const [one, two] = [await acme.createFile(ITEMS / 2), await client.createFile(ITEMS / 2)];
    const done = async () => [await acme.completed(one), await client.completed(two)];
    let now = await done();
    for (; Math.max(...now) < ITEMS / 2; now = await done()) await sleep(WATCH_MS);
    rows.push([name, ...now.map(String)]);
    await Promise.all([acme.ended(one), client.ended(two)]);
  }
  print("Two batches side by side: items over when the first of them is", ["", "one", "the other"], rows);
}

/** A small batch that comes while a large one runs. */
async function later(): Promise<void> {
  const small = ITEMS / 20;
  const timed = async (client: BatchClient) => {
    const started = performance.now();
    await client.ended(await client.createFile(small));
    return seconds(performance.now() - started);
  };
  const rows = [["alone", await timed(other)]];
  const large = await acme.createFile(ITEMS);
  while ((await acme.completed(large)) < small) await sleep(WATCH_MS);
  rows.push(["of another organization", await timed(other)]);
  rows.push(["of the same organization", await timed(acme)]);
  const left = ITEMS - (await acme.completed(large));
  await acme.ended(large);
  print(
    `A batch of ${small}, alone and while one of ${ITEMS} runs (${left} left in the end)`,
    ["", "s"],
    rows,
  );
}

/** What a client feels that sends one live request at a time, in turns without and beside a batch. */
async function liveBeside(): Promise<void> {
  const request = requestFor({ path: "/v1/chat/completions", model: "json", stream: false });
  const round = async () => (await load({ port, request, width: 1, ms: LIVE_ROUND_MS })).wholeMs;
  await round();
  const without: number[] = [];
  const beside: number[] = [];
  for (let turn = 0; turn < LIVE_ROUNDS; turn += 1) {
    without.push(...(await round()));
    const id = await acme.createMessages(messagesBody(ITEMS));
    beside.push(...(await round()));
    await acme.cancel(id);
    await acme.ended(id);
  }
  const rows = [0.5, 0.9, 0.99].map((share) => {
    const [quiet, busy] = [percentile(without, share), percentile(beside, share)];
    return [`p${share * 100}`, quiet.toFixed(2), busy.toFixed(2), ratio(busy, quiet)];
  });
  const columns = ["", "without, ms", "beside, ms", "beside to without"];
  print("One live request at a time, without and beside a batch (goal: p99 at most 1.5 ×)", columns, rows);
}

/** Resident memory while a body of 256 MiB comes in. */
async function largeBody(): Promise<void> {
  const itemBytes = 32 * 1024;
  // A little less: the limit is on the whole body.
  const count = LARGE_BYTES / itemBytes - 8;
  const before = treeRssBytes(pid);
  let most = before;
  const watch = setInterval(() => (most = Math.max(most, treeRssBytes(pid))), WATCH_MS);
  const started = performance.now();
  const id = await acme.createMessages(bodyPieces(count, "y".repeat(itemBytes - 300)));
  const tookMs = performance.now() - started;
  clearInterval(watch);
  await acme.cancel(id);
  await acme.ended(id);
  const rows = [
    ["before", mebibytes(before)],
    ["most while it came in", mebibytes(most)],
  ];
  print(`A body of 256 MiB, stored in ${seconds(tookMs)} s`, ["resident memory", "MiB"], rows);
}

function print(title: string, columns: readonly string[], rows: readonly (readonly string[])[]): void {
  console.log(`\n${renderTable({ title, columns, rows })}`);
}
