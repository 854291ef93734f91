-- Keeps one cache entry. Removes expired ones, then, until it fits, those that expire soonest of the owner that has most.
-- KEYS: index by expiry, sizes, total, owner of each entry, bytes of each owner.
-- ARGV: entry key, value, ttl in ms, size, largest total, owner, prefix of entries, prefix of an owner's index by expiry.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function share(owner, bytes)
  if tonumber(redis.call('ZINCRBY', KEYS[5], bytes, owner)) <= 0 then redis.call('ZREM', KEYS[5], owner) end
end
local function drop(key)
  local size = redis.call('HGET', KEYS[2], key)
  local owner = redis.call('HGET', KEYS[4], key)
  if size then
    redis.call('HDEL', KEYS[2], key)
    redis.call('INCRBY', KEYS[3], -size)
  end
  if size and owner then
    redis.call('HDEL', KEYS[4], key)
    redis.call('ZREM', ARGV[8] .. owner, key)
    share(owner, -size)
  end
  redis.call('ZREM', KEYS[1], key)
  redis.call('UNLINK', ARGV[7] .. key)
end
local function isFull()
  return tonumber(redis.call('GET', KEYS[3]) or '0') + ARGV[4] > tonumber(ARGV[5])
end
drop(ARGV[1])
for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 100)) do drop(key) end
for _ = 1, 100 do
  if not isFull() then break end
  local most = redis.call('ZREVRANGE', KEYS[5], 0, 0)[1]
  local oldest = most and redis.call('ZRANGE', ARGV[8] .. most, 0, 0)[1]
  if not oldest then break end
  drop(oldest)
end
if isFull() then return 0 end
redis.call('SET', ARGV[7] .. ARGV[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[4])
redis.call('HSET', KEYS[4], ARGV[1], ARGV[6])
redis.call('INCRBY', KEYS[3], ARGV[4])
redis.call('ZADD', ARGV[8] .. ARGV[6], now + ARGV[3], ARGV[1])
share(ARGV[6], ARGV[4])
return 1
