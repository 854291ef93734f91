-- Counts one tool call of an organization against its limit for the last minute; over all pods, to the millisecond.
-- KEYS: the organization's calls, a sorted set of times. ARGV: limit, id of the call.
-- Replies 1 when the call may run, else 0: a refused call does not count.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 60000)
-- Of a later time than now, as the clock stepped back (rule 12.8): each counts for a minute from here on, not until the
-- clock has come there again.
local later = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now), '+inf')
for _, id in ipairs(later) do
  redis.call('ZADD', KEYS[1], now, id)
end
if #later > 0 then
  redis.call('PEXPIRE', KEYS[1], 60000)
end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now, ARGV[2])
redis.call('PEXPIRE', KEYS[1], 60000)
return 1
