-- Keeps one cache entry and removes expired, then soonest-expiring entries until it fits.
-- KEYS: index by expiry, sizes, total. ARGV: entry key, value, ttl in ms, size, largest total, prefix of entries.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function drop(key)
  local size = redis.call('HGET', KEYS[2], key)
  if size then
    redis.call('HDEL', KEYS[2], key)
    redis.call('INCRBY', KEYS[3], -size)
  end
  redis.call('ZREM', KEYS[1], key)
  redis.call('UNLINK', ARGV[6] .. key)
end
drop(ARGV[1])
for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 100)) do drop(key) end
for _ = 1, 100 do
  if tonumber(redis.call('GET', KEYS[3]) or '0') + ARGV[4] <= tonumber(ARGV[5]) then break end
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
  if not oldest then break end
  drop(oldest)
end
if tonumber(redis.call('GET', KEYS[3]) or '0') + ARGV[4] > tonumber(ARGV[5]) then return 0 end
redis.call('SET', ARGV[6] .. ARGV[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[4])
redis.call('INCRBY', KEYS[3], ARGV[4])
return 1
