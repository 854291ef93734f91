/** What data planes of batches stand on: stores of their own and one upstream. */
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { text } from "../fakes/upstream/script.ts";
import { startUpstream, withFaults, type FakeUpstream } from "../fakes/upstream/server.ts";
import { BatchPlane, type PlaneOptions, type Stores } from "./batches-world.ts";
import { makeOrganization } from "./money-world.ts";
import { freshDatabase, freshRedis } from "./stores.ts";

export interface Ground {
  readonly upstream: FakeUpstream;
  readonly stores: Stores;
  close(): Promise<void>;
}

export async function openGround(): Promise<Ground> {
  const upstream = await startUpstream();
  const database = await freshDatabase();
  const redis = await freshRedis();
  return {
    upstream,
    stores: { redisUrl: redis.url, postgresUrl: database.url },
    close: async () => {
      await redis[Symbol.asyncDispose]();
      await database.drop();
      await upstream.close();
    },
  };
}

/** Headers of `org_narrow`, which has no credit (`openSmallPlane`). */
export const poor = { authorization: `Bearer ${sampleKeys.narrow}` };

/** An answer that leaves time to act while its item runs. */
export const slow = withFaults(text("fine", { input: 10, output: 5 }), { delayHeadersMs: 400 });

/** Two items run at once. `org_acme` has credit, and `org_narrow` has none. */
export async function openSmallPlane(ground: Ground, clock?: PlaneOptions["clock"]): Promise<BatchPlane> {
  const plane = await BatchPlane.open(ground.stores, {
    upstreamUrl: ground.upstream.url,
    ...(clock === undefined ? {} : { clock }),
    worker: { limits: { places: 2, placesOfOne: 2 }, rhythm: { pollMs: 100 } },
  });
  await makeOrganization(plane.pool, "org_acme", 10_000_000_000n);
  await makeOrganization(plane.pool, "org_narrow", 0n);
  return plane;
}
