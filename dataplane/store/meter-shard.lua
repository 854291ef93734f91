-- What every script of the meter stands on: the keys of one shard, the time, and the books of one organization.
-- The files meter-*.lua are joined into one script (dataplane/billing/shard.ts), this one first.
--
-- All keys of a shard share one hash tag, so that a script touches one slot. KEYS[1] is the tag, `{gapura-meter-7}`:
--   TAG:epoch     a random word; another word or none means that this Redis lost what it knew (design.md §5)
--   TAG:o:ORG     hash of an organization: base, version (of the ledger's account that base was read at),
--                 undrained (charged but not yet in base), held (sum of its holds), short (what its holds lack of their
--                 estimates), keyEpoch, live (running requests)
--   TAG:r:ID      string of a request: its hold while it runs (`read_request`), then for a while "final" or
--                 "provisional", as it was charged, so that a repeat changes nothing
--   TAG:beats     sorted set of hold ids by the time of their last heartbeat
--   TAG:b:ORG     hash of the organization's rate-limit buckets: requests, tokens (levels), at (when they were right)
--   TAG:usage     stream of charged rows on their way to the ledger: r, its one field, is organization, cost and row
--                 with a unit separator (31) between them, as whoever reads it pays for each field more than for a byte
--
-- Every command costs this server more than the words of it, and it serves all pods: so a request has one key, and
-- what the operations of a call change in an organization's books is written once, at the call's end.
--
-- Amounts are decimal strings of micro-credits and change only through HINCRBY. Each lies within ±9×10^15, so a
-- comparison in Lua's doubles (exact up to 2^53) is exact; writing one needs %.0f, as `tostring` keeps 14 digits.
local call = redis.call
local tag = KEYS[1]
local BEATS, USAGE = tag .. ':beats', tag .. ':usage'
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
-- A number becomes an argument by way of 17 digits; a text is one.
local now_text = string.format('%.0f', now)

-- Charged rows beyond this mean that the ledger is out of reach: new requests are refused.
local MAX_UNDRAINED = 1000000
-- Pods charge again, after a loss, what they charged in the last 60 s.
local CHARGED_MS = '75000'

local function text(number)
  return string.format('%.0f', number)
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

local function request_key(id)
  return tag .. ':r:' .. id
end

-- Books by organization: as they are now, and what of that is still to be written (a sum for each field).
local known, owed = {}, {}
-- A sum up to here and an amount of 15 digits make a sum that a double holds exactly.
local MOST_OWED = 4500000000000000

-- Changes undrained, held, short or live of an organization; `amount` may be negative.
local function add(organization, field, amount)
  if amount == '0' then
    return
  end
  local change = tonumber(amount)
  local account = known[organization]
  if account then
    account[field] = account[field] + change
  end
  if #amount > 15 then
    call('HINCRBY', organization_key(organization), field, amount)
    return
  end
  local sums = owed[organization]
  if not sums then
    sums = {}
    owed[organization] = sums
  end
  local sum = (sums[field] or 0) + change
  if math.abs(sum) > MOST_OWED then
    call('HINCRBY', organization_key(organization), field, text(sum))
    sum = 0
  end
  sums[field] = sum
end

-- Writes what `add` gathered.
local function write_books()
  for organization, sums in pairs(owed) do
    for field, sum in pairs(sums) do
      if sum ~= 0 then
        call('HINCRBY', organization_key(organization), field, text(sum))
      end
    end
  end
  owed = {}
end

-- base, undrained, held, short, keyEpoch, live; nil while the ledger's account has not been read.
local function books(organization)
  local account = known[organization]
  if account then
    return account
  end
  local values = call('HMGET', organization_key(organization), 'base', 'undrained', 'held', 'keyEpoch', 'live', 'short')
  if not values[1] then
    return nil
  end
  account = {
    base = tonumber(values[1]),
    undrained = tonumber(values[2] or 0),
    held = tonumber(values[3] or 0),
    keyEpoch = tonumber(values[4] or 0),
    live = tonumber(values[5] or 0),
    short = tonumber(values[6] or 0),
  }
  for field, sum in pairs(owed[organization] or {}) do
    account[field] = account[field] + sum
  end
  known[organization] = account
  return account
end

-- A hold is packed: organization, amount, short (what it lacks of its estimate), item ("1" for a batch item), swept
-- ("1" after a provisional charge), row and cost (what the sweeper would charge).
local HOLD = 'sssssss'

-- A request's hold, still packed, or nil and how it was charged, or nil.
local function read_request(id)
  local packed = call('GET', request_key(id))
  if packed == 'final' or packed == 'provisional' then
    return nil, packed
  end
  return packed or nil
end

-- Says as well that the request's owner lives. After id: the parts of a hold.
local function write_hold(id, ...)
  call('SET', request_key(id), struct.pack(HOLD, ...))
  call('ZADD', BEATS, now_text, id)
end

local function make_hold(id, organization, amount, short, item, swept, row, cost)
  write_hold(id, organization, amount, short, item, swept, row, cost)
  add(organization, 'held', amount)
  add(organization, 'short', short)
  if item ~= '1' then
    add(organization, 'live', '1')
  end
end

-- Gives a packed hold's credit back; what becomes of the request's key is the caller's.
local function give_back(id, hold)
  local organization, amount, short, item = struct.unpack('ssss', hold)
  call('ZREM', BEATS, id)
  add(organization, 'held', negative(amount))
  add(organization, 'short', negative(short))
  if item ~= '1' then
    add(organization, 'live', '-1')
  end
end

-- kind: final or provisional.
local function mark_charged(id, kind)
  call('SET', request_key(id), kind, 'PX', CHARGED_MS)
end

-- The row first: where Redis refuses it, nothing has happened, and the mark would say that it had.
local function charge(organization, id, hold, cost, row, kind)
  call('XADD', USAGE, '*', 'r', organization .. '\31' .. cost .. '\31' .. row)
  add(organization, 'undrained', cost)
  if hold then
    give_back(id, hold)
  end
  mark_charged(id, kind)
end

-- Operations by name; each file below adds its own.
local operations = {}
