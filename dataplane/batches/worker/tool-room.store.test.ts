import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { freshRedis } from "../../../test/integration/stores.ts";
import { openRedis, redisReady } from "../../store/redis.ts";
import { redisCallLimit } from "../../tools/call-limit.ts";
import { ToolRoom } from "./tool-room.ts";

test("rule 4.5: calls of batches and live ones are counted together; batches leave a fifth and wait for the rest", async () => {
  await using store = await freshRedis();
  const redis = openRedis(store.url, { onError: () => {} });
  try {
    await redisReady(redis, 5_000);
    const live = redisCallLimit(redis);
    const { admit: batch } = new ToolRoom({ admit: live, sleep: () => sleep(20) });
    for (let call = 0; call < 4; call += 1) expect(await batch("org", 5)).toBe(true);
    let admitted = false;
    const fifth = batch("org", 5).then((answer) => (admitted = answer));
    await sleep(200);
    expect(admitted).toBe(false);
    expect(await live("org", 5)).toBe(true);
    expect(await live("org", 5)).toBe(false);
    // Another organization has a minute of its own.
    expect(await batch("other", 5)).toBe(true);
    // As the end of the minute does.
    await redis.flushall();
    expect(await fifth).toBe(true);
  } finally {
    redis.disconnect();
  }
});
