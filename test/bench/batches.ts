/**
 * Batches side by side with the upstream alone: how long 10,000 requests of one kilobyte take to be stored, and how
 * many a second are worked on. It starts its own stores: `node test/bench/batches.ts`.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { migrate } from "../../dataplane/store/migrate.ts";
import { startPostgres } from "../../hack/postgres.ts";
import { startRedis } from "../../hack/redis.ts";
import { text } from "../fakes/upstream/script.ts";
import { startUpstream } from "../fakes/upstream/server.ts";
import { BatchPlane, bodyOf } from "../integration/batches-world.ts";
import { makeOrganization } from "../integration/money-world.ts";

const ITEMS = 10_000;
const AT_ONCE = 56;
const say = (line: string) => process.stderr.write(`${line}\n`);

const folder = await mkdtemp(join(tmpdir(), "gapura-bench-"));
const postgres = await startPostgres({ folder: join(folder, "postgres"), port: 0, durable: true, say });
const redis = await startRedis({ folder: join(folder, "redis"), port: 0, durable: true, say });
const upstream = await startUpstream();
try {
  await migrate(postgres.url());
  upstream.model("upstream-messages", text("fine", { input: 300, output: 5 }));
  const params = bodyOf.messages("x".repeat(900));

  const alone = await seconds(async () => {
    let left = ITEMS;
    const body = JSON.stringify({ ...params, model: "upstream-messages" });
    const ask = async () => {
      while (left-- > 0) await (await fetch(`${upstream.url}/v1/messages`, { method: "POST", body })).text();
    };
    await Promise.all(Array.from({ length: AT_ONCE }, ask));
  });

  const plane = await BatchPlane.open(
    { redisUrl: `redis://127.0.0.1:${redis.port}`, postgresUrl: postgres.url() },
    { upstreamUrl: upstream.url },
  );
  await makeOrganization(plane.pool, "org_acme", 1_000_000_000_000n);
  const requests = Array.from({ length: ITEMS }, (_, index) => ({ custom_id: `i${index}`, params }));
  const body = JSON.stringify({ requests });
  let id = "";
  const enqueue = await seconds(async () => {
    id = String((await plane.json("POST", "/v1/messages/batches", body)).body["id"]);
  });
  const work = await seconds(async () => void (await plane.ended(`/v1/messages/batches/${id}`, 600_000)));
  const read = await seconds(async () => void (await plane.lines(`/v1/messages/batches/${id}/results`)));
  const rate = (time: number) => `${Math.round(ITEMS / time)} a second`;
  console.log(`the upstream alone, ${AT_ONCE} at once: ${rate(alone)}`);
  console.log(`enqueue ${ITEMS} items of one kilobyte: ${enqueue.toFixed(2)} s`);
  console.log(`worked on: ${rate(work)} (${(work / alone).toFixed(1)} times as long as the upstream alone)`);
  console.log(`results read: ${read.toFixed(2)} s`);
  await plane.close();
} finally {
  await upstream.close();
  await redis.stop();
  await postgres.stop();
  await rm(folder, { recursive: true, force: true });
}

async function seconds(work: () => Promise<void>): Promise<number> {
  const started = performance.now();
  await work();
  return (performance.now() - started) / 1000;
}
