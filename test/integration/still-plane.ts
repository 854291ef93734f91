/** The money of one data plane on stores of its own, which a file of tests shares: each step in it is a test's. */
import { Plane, type PlaneStores } from "./money-world.ts";
import { freshDatabase, freshRedis } from "./stores.ts";

export interface StillPlane {
  readonly plane: Plane;
  readonly stores: PlaneStores;
  readonly close: () => Promise<void>;
}

/** A sweep of it takes every hold for one that nobody renews any more. */
export async function openStillPlane(): Promise<StillPlane> {
  const [database, redis] = await Promise.all([freshDatabase(), freshRedis()]);
  const stores = { redisUrl: redis.url, postgresUrl: database.url };
  const plane = await Plane.open(stores, { running: false, rhythm: { staleMs: -1 } });
  return {
    plane,
    stores,
    close: async () => {
      await plane.close();
      await redis[Symbol.asyncDispose]();
      await database.drop();
    },
  };
}
