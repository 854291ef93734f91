/**
 * Postgres is lost and its streaming replica takes its place, under load (rule 12.4): one that lags costs what neither Redis nor
 * a living data plane remembers, which is told to the micro-credit; a synchronous one costs nothing but time.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { sql, type DatabasePool } from "slonik";
import { afterEach, expect, test } from "vitest";
import { z } from "zod";
import { createPostgresPool } from "../../dataplane/store/postgres.ts";
import type { DataPlane } from "../fakes/data-plane.ts";
import { TcpProxy } from "../fakes/tcp-proxy.ts";
import { freshPostgres, freshRedis, freshReplica, type TestStore } from "../integration/stores.ts";
import { World, markerOf, readRows, type LedgerRow } from "./money-planes.ts";

let open: AsyncDisposableStack;
afterEach(() => open.disposeAsync());

const answered = ({ seen }: World) => seen.filter((one) => one.complete);
const complete = (world: World) => answered(world).length;

async function setUp({ synchronous }: { readonly synchronous: boolean }) {
  open = new AsyncDisposableStack();
  const primary = open.use(await freshPostgres());
  const redis = open.use(await freshRedis());
  /** What the replica hears of the primary. */
  const wire = await TcpProxy.open(primary.url);
  open.defer(() => wire.close());
  const replica = open.use(await freshReplica({ ...primary, url: wire.url }));
  /** The address of whichever is primary. */
  const service = await TcpProxy.open(primary.url);
  open.defer(() => service.close());
  const [before, after] = await Promise.all([connect(primary), connect(replica)]);
  if (synchronous) {
    await before.query(sql.unsafe`alter system set synchronous_standby_names = '*'`);
    await before.query(sql.unsafe`select pg_reload_conf()`);
    const state = sql.type(
      z.object({ state: z.string() }),
    )`select sync_state as state from pg_stat_replication`;
    await expect.poll(() => before.anyFirst(state), { timeout: 20_000 }).toEqual(["sync"]);
  }
  const world = await World.open({ redisUrl: redis.url, postgresUrl: service.url });
  open.defer(() => world.close());
  return { primary, replica, wire, service, before, after, world };
}

async function connect(store: TestStore): Promise<DatabasePool> {
  const pool = await createPostgresPool(store.url, { onError: () => {} });
  open.defer(() => pool.end());
  return pool;
}

/** Waits until that ledger has a row for each answer. */
async function drained(world: World, pool: DatabasePool): Promise<void> {
  const without = async () => {
    const rows = (await readRows(pool)).filter(({ provisional }) => !provisional);
    const charged = new Set(rows.map(({ output }) => markerOf(Number(output))));
    return answered(world).filter(({ marker }) => !charged.has(marker));
  };
  await expect.poll(without, { timeout: 20_000 }).toEqual([]);
}

test.each([
  { who: "a replica that lags", synchronous: false },
  { who: "a synchronous replica", synchronous: true },
])(
  "$who becomes primary, and one of two data planes dies with the old one",
  async ({ synchronous }) => {
    const { primary, replica, wire, service, before, after, world } = await setUp({ synchronous });
    const [dying, living] = await Promise.all([world.start(), world.start()]);
    const ask = async (planes: readonly DataPlane[], more: number) => {
      const [enough, stopped] = [complete(world) + more, new AbortController()];
      const load = world.load(() => planes, 6, stopped.signal);
      await expect.poll(() => complete(world), { timeout: 40_000 }).toBeGreaterThan(enough);
      stopped.abort();
      await load;
    };
    await ask([dying, living], 40);
    await drained(world, after);
    // A replica that nobody waits for hears of nothing more; the ledger has what these two charge, and it has not.
    if (!synchronous) wire.hole();
    await ask([dying, living], 60);
    const from = world.seen.length;
    await ask([living], 20);
    const ofLiving = new Set(world.seen.slice(from).map(({ marker }) => marker));
    await drained(world, before);
    await dying.stop("SIGKILL");

    const stopped = new AbortController();
    const load = world.load(() => [living], 4, stopped.signal);
    await sleep(500);
    const lostAt = performance.now();
    await primary.kill();
    await after.query(sql.unsafe`select pg_promote()`);
    service.leadTo(replica.url);
    const served = complete(world);
    await expect.poll(() => complete(world), { timeout: 40_000 }).toBeGreaterThan(served + 40);
    stopped.abort();
    await load;
    process.stderr.write(
      `postgres: 40 answers ${(performance.now() - lostAt).toFixed()} ms after it was lost\n`,
    );
    // Within the two seconds in which it looks which Postgres answers: its end must look.
    await living.stop("SIGTERM");

    // To see what it had, the old one is started once more, where nobody else finds it.
    wire.cut();
    await primary.start();
    const lost = missing(await readRows(await connect(primary)), await readRows(after));
    process.stderr.write(`postgres: ${lost.length} rows are lost\n`);
    if (synchronous) expect(lost).toEqual([]);
    else expect(lost.length).toBeGreaterThan(10);
    const remembered = lost.filter(({ output }) => ofLiving.has(markerOf(Number(output))));
    expect(remembered, "what a living data plane charged").toEqual([]);
    await world.judge(lost);
  },
  180_000,
);

/** What one ledger has and the other has not. */
function missing(rows: readonly LedgerRow[], others: readonly LedgerRow[]): LedgerRow[] {
  const known = new Set(others.map(({ id }) => id));
  return rows.filter(({ id }) => !known.has(id));
}
