-- What every script of the meter stands on: the keys of one shard, the time, and the books of one organization.
-- The files meter-*.lua are joined into one script (dataplane/billing/shard.ts), this one first.
--
-- All keys of a shard share one hash tag, so that a script touches one slot. KEYS[1] is the tag, `{gapura-meter-7}`:
--   TAG:epoch     a random word; another word or none means that this Redis lost what it knew (design.md §5)
--   TAG:o:ORG     hash of an organization: base, version (of the ledger's account that base was read at),
--                 undrained (charged but not yet in base), held (sum of its holds), short (what its holds lack of their
--                 estimates), keyEpoch, live (running requests)
--   TAG:h:ID      hash of a hold: org, amount, short, item ("1" for a batch item), row and cost (what the sweeper would
--                 charge)
--   TAG:beats     sorted set of hold ids by the time of their last heartbeat
--   TAG:done:ID   "final" or "provisional" for a while after a request was charged, so that a repeat changes nothing
--   TAG:b:ORG     hash of the organization's rate-limit buckets: requests, tokens (levels), at (when they were right)
--   TAG:usage     stream of charged rows on their way to the ledger: r, its one field, is organization, cost and row
--                 with a unit separator (31) between them, as whoever reads it pays for each field more than for a byte
--
-- Amounts are decimal strings of micro-credits and change only through HINCRBY. Each lies within ±9×10^15, so a
-- comparison in Lua's doubles (exact up to 2^53) is exact; writing one needs %.0f, as `tostring` keeps 14 digits.
local tag = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Charged rows beyond this mean that the ledger is out of reach: new requests are refused.
local MAX_UNDRAINED = 1000000
-- Pods charge again, after a loss, what they charged in the last 60 s.
local DONE_MS = 75000

local function text(number)
  return string.format('%.0f', number)
end

local function amount_of(value)
  return tonumber(value or '0')
end

-- Redis does not read "-0" as a number.
local function negative(amount)
  if amount == '0' then
    return '0'
  end
  return '-' .. amount
end

local function organization_key(organization)
  return tag .. ':o:' .. organization
end

local function hold_key(id)
  return tag .. ':h:' .. id
end

local function done_key(id)
  return tag .. ':done:' .. id
end

-- base, undrained, held, short, keyEpoch, live; nil while the ledger's account has not been read.
local function books(organization)
  local values = redis.call('HMGET', organization_key(organization), 'base', 'undrained', 'held', 'keyEpoch', 'live', 'short')
  if not values[1] then
    return nil
  end
  return {
    base = tonumber(values[1]),
    undrained = amount_of(values[2]),
    held = amount_of(values[3]),
    keyEpoch = amount_of(values[4]),
    live = amount_of(values[5]),
    short = amount_of(values[6]),
  }
end

-- A hold's shortfall changes only here and in drop_hold.
local function set_short(organization, id, from, to)
  if from ~= to then
    redis.call('HSET', hold_key(id), 'short', to)
    redis.call('HINCRBY', organization_key(organization), 'short', text(tonumber(to) - tonumber(from)))
  end
end

local function make_hold(organization, id, amount, item, row, cost)
  redis.call('HSET', hold_key(id), 'org', organization, 'amount', amount, 'item', item, 'row', row, 'cost', cost)
  redis.call('ZADD', tag .. ':beats', now, id)
  redis.call('HINCRBY', organization_key(organization), 'held', amount)
  if item ~= '1' then
    redis.call('HINCRBY', organization_key(organization), 'live', 1)
  end
end

-- Gives a hold's credit back; false when there is no such hold.
local function drop_hold(id)
  local hold = redis.call('HMGET', hold_key(id), 'org', 'amount', 'item', 'short')
  redis.call('ZREM', tag .. ':beats', id)
  if not hold[1] then
    return false
  end
  if hold[4] then
    set_short(hold[1], id, hold[4], '0')
  end
  redis.call('DEL', hold_key(id))
  redis.call('HINCRBY', organization_key(hold[1]), 'held', negative(hold[2]))
  if hold[3] ~= '1' then
    redis.call('HINCRBY', organization_key(hold[1]), 'live', -1)
  end
  return true
end

local function charge(organization, id, cost, row, kind)
  redis.call('HINCRBY', organization_key(organization), 'undrained', cost)
  redis.call('XADD', tag .. ':usage', '*', 'r', organization .. '\31' .. cost .. '\31' .. row)
  redis.call('SET', done_key(id), kind, 'PX', DONE_MS)
end

-- Operations by name; each file below adds its own.
local operations = {}
