/** A step of Redis' clock: nobody can move the clock of a server here, so all that it has noted of it is moved instead. */
import type { Redis } from "ioredis";

/** In one go, so that no call comes in between. The hash tags are those of `shardTag` (billing/holds/shard.ts). */
const script = `
  local by = tonumber(ARGV[1])
  for _, key in ipairs(redis.call('KEYS', '{gapura-meter-*')) do
    local left = redis.call('PTTL', key)
    if left > 0 then
      redis.call('PEXPIRE', key, math.max(1, left - by))
    end
  end
  for _, key in ipairs(redis.call('KEYS', '{gapura-meter-*}:clock')) do
    local raw, rest = string.match(redis.call('GET', key), '^(%d+) (.*)$')
    redis.call('SET', key, string.format('%.0f %s', raw - by, rest))
  end
  for _, key in ipairs(by < 0 and redis.call('KEYS', '{gapura-meter-*}:usage') or {}) do
    -- Under the clock of now it goes on from the last id, however late that is.
    local ms = string.match(redis.call('XINFO', 'STREAM', key)[8], '^%d+')
    redis.call('XSETID', key, string.format('%.0f-0', ms - by))
  end`;

/** As if all calls until now had been made under a clock that has just been put forward by so much, or back. */
export async function stepClock(redis: Redis, byMs: number): Promise<void> {
  await redis.eval(script, 0, String(byMs));
}
