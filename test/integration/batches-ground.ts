/** What data planes of batches stand on: stores of their own and one upstream. */
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import type { Stores } from "./batches-world.ts";
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
