-- What all scripts of the meter share: the keys of one shard, the time, and the books of one organization.
-- The files meter-*.lua are joined into one script (dataplane/billing/holds/shard.ts), this one first.
--
-- All keys of a shard share one hash tag, so that a script touches one slot. KEYS[1] is the tag, `{gapura-meter-7-79}`:
--   TAG:ledger    the ledger and the run of its server that the bases of this shard are from
--   TAG:clock     when a call of this shard was last noted: the server's clock, and the shard's; and by which run of which
--                 server, as part of which history of data (`run_id` and `master_replid` of its INFO)
--   TAG:epoch     the ledger's id and a random word; another word or none means that this Redis lost what it knew
--                 (design.md §5), another ledger that this Redis is not ours
--   TAG:o:ORG     hash of an organization: base, version (of the ledger's account that base was read at), keyEpoch,
--                 undrained (charged but not yet in base); and of its holds: held (their sum), short (what they lack of
--                 their estimates), live (running requests), epoch (the word that these three were counted under)
--                 reading (grows whenever the spend of its scopes must be read anew), moved (entries of the stream up to
--                 this one may belong to scopes that they do not name: a limit was set, or a key moved, since)
--   TAG:s:NAME    as TAG:o:ORG, of a scope of limits (rule 9.1): a key or a project in a window, whose base is its spend there
--                 as the ledger has it, below zero, reading the word that it holds under, and keyEpoch that of whoever asked for
--                 it: charges of a later one may belong to it without naming it, as the limit may be gone. Of a key or
--                 project without a window only its running requests. NAME: meter-scopes.lua
--   TAG:scopes, TAG:accounts  sorted sets of the scopes and of the organizations, by the time at which something was told of
--                 them
--   TAG:r:ID      string of a request: its hold while it runs (meter-requests.lua), then for a while "final" or
--                 "provisional", as it was charged, so that a repeat changes nothing
--   TAG:charged   list of what was charged finally, oldest first: for each call when that was, and the ids, with a
--                 unit separator (31) between them
--   TAG:beats     sorted set of hold ids by the time of their last heartbeat
--   TAG:l:NAME    rate-limit buckets of an organization or a scope: level of requests, of tokens, when they were right, and the
--                 limits of requests and of tokens that they are of
--   TAG:f:GROUP:ORG  hash of what the organization may still ask of free endpoints: requests, bytes (levels), at, and the limits
--                 that they are of: perMinute and size, bytesLimit
--   TAG:usage     stream of charges on their way to the ledger, an entry for each call: r, its one field, has for each
--                 charge its organization, cost and row with a unit separator (31) between them, and a record separator
--                 (30) between two charges. Whoever reads it pays for each entry and field more than for a byte
--   TAG:waiting   number of charges in TAG:usage; none when that is empty
--   TAG:leader    the pod that drains and sweeps this shard, and its last beat (meter-lead.lua)
--   TAG:drained   the youngest entry that was deleted from TAG:usage as the ledger has it: pods keep their charges until then
--
-- Charges are durable: they go to the append-only file, which is on the disk before the reply leaves. Holds without observed
-- usage, their sums, heartbeats, rate-limit buckets and the clock are not in that file: they cost no sync, and vanish when
-- Redis restarts. Replicas get all of it, but late. So a server that was started anew, or became the master, may have wrong
-- holds and sums: the epoch is over then, and those of another epoch count for nothing (docs/decisions/redis-durability.md).
--
-- Every command costs this server more than the words of it, and it serves all pods: so a request has one key, and what a
-- call's operations change is written once, at the call's end.
--
-- Amounts are decimal strings of micro-credits and change only through HINCRBY. Each lies within ±9×10^15, so a
-- comparison in Lua's doubles (exact up to 2^53) is exact; writing one needs %.0f, as `tostring` keeps 14 digits.
local call = redis.call
local tag = KEYS[1]
local BEATS, CHARGED, USAGE, WAITING = tag .. ':beats', tag .. ':charged', tag .. ':usage', tag .. ':waiting'
local LEDGER, SCOPES, ACCOUNTS = tag .. ':ledger', tag .. ':scopes', tag .. ':accounts'
local DRAINED, LEADER = tag .. ':drained', tag .. ':leader'
local CLOCK = tag .. ':clock'
-- Charges beyond this mean that the ledger is out of reach: new requests are refused.
local MAX_UNDRAINED = 1000000

-- The epoch; false: there is none. Without its random word it is over.
local epoch, stored = unpack(call('MGET', tag .. ':epoch', CLOCK))

-- Milliseconds. The server's clock may step, and another server's is another one; the shard's own, `now`, goes on from where
-- it was, by what passed since the call before, up to a second: a leader calls four times a second (meter-lead.lua).
-- So a step back refuses nobody, and a step forward fills no bucket and ends no hold.
local MOST_PASSED, CLOCK_WRITTEN = 1000, 200
local time = call('TIME')
local raw = time[1] * 1000 + math.floor(time[2] / 1000)
local raw_before, before, run_before, history_before = string.match(stored or '', '^(%d+) (%d+) (%S+) (%S+)$')
local now = raw
local passed = before and raw - raw_before
if before then
  -- After a step back nobody knows what had passed since it was noted: at most this, so `now` was never later.
  now = before + (passed < 0 and CLOCK_WRITTEN or math.min(passed, MOST_PASSED))
end

-- Whose data this is; looked at when the clock is to be noted, as it costs some microseconds. Inside a script the server
-- answers itself, whatever proxy stands before it. '-': it does not tell.
local server_run, history
if not passed or passed < 0 or passed >= CLOCK_WRITTEN then
  local told = {}
  for _, section in ipairs({ 'server', 'replication' }) do
    local info = redis.pcall('INFO', section)
    told[section] = type(info) == 'string' and info or ''
  end
  server_run = string.match(told.server, 'run_id:(%w+)') or '-'
  history = string.match(told.replication, 'master_replid:(%w+)') or '-'
  local earlier = string.match(told.replication, 'master_replid2:(%w+)') or ''
  -- The epoch is over when another run or another server has the data, as it may lack what was acknowledged. The same run may
  -- have copied its data from such a server and become the master again: then its history has another name, and it knows the
  -- earlier one. A master that never was a replica, and gets its first, renames its history as well but knows no earlier name.
  local same_history = history == history_before or string.match(earlier, '^0+$')
  if epoch and not (server_run == run_before and same_history) then
    epoch = string.match(epoch, '^[^.]+%.') or false
  end
end

-- Runs a command whose change is kept out of the append-only file: it vanishes when Redis restarts.
local function volatile(...)
  redis.set_repl(redis.REPL_REPLICA)
  local reply = redis.pcall(...)
  redis.set_repl(redis.REPL_ALL)
  if type(reply) == 'table' and reply.err then
    error(reply, 0)
  end
  return reply
end

-- Stores the clock for later calls; not in each, because a command costs more than some milliseconds of accuracy are worth.
local function keep_clock()
  if server_run then
    pcall(volatile, 'SET', CLOCK, string.format('%.0f %.0f %s %s', raw, now, server_run, history))
  end
end

-- A server at its memory limit refuses commands that need memory until the script has written something. To be called
-- before writes that must succeed, because what frees memory comes after them.
local function insist()
  call('DEL', tag .. ':none')
end

local function text(number)
  return string.format('%.0f', number)
end

-- Lua reads the text of a number twice, which costs as much as a dozen table accesses; most limits and corrections are 0.
local function number(words)
  if words == '0' then
    return 0
  end
  return tonumber(words)
end

-- Names of scopes begin with a slash, which no organization's does.
local SLASH = 47
local function is_scope(name)
  return string.byte(name) == SLASH
end

local function organization_key(organization)
  return tag .. (is_scope(organization) and ':s:' or ':o:') .. organization
end

-- Something was told of an organization or a scope: it is forgotten so much later (meter-scopes.lua).
local function note_told(name)
  call('ZADD', is_scope(name) and SCOPES or ACCOUNTS, text(now), name)
end

-- Books by organization: as they are now, and what of that is still to be written (a sum for each field).
local known, owed = {}, {}
-- By organization: whether the sums of its holds are those of this epoch.
local current = {}
-- Sums within this and one more amount make a sum that a double holds exactly, or are written one by one.
local MOST_OWED = 4500000000000000

-- base, undrained, held, short, keyEpoch, live, reading, moved; nil while the ledger's account has not been read. Of a scope whose
-- spend has not been read only its base is nil.
local function books(organization)
  local account = known[organization]
  if account then
    return account
  end
  local values = call('HMGET', organization_key(organization),
    'base', 'undrained', 'keyEpoch', 'epoch', 'held', 'live', 'short', 'reading', 'moved')
  current[organization] = values[4] == epoch
  if not values[1] and not is_scope(organization) then
    return nil
  end
  account = {
    base = tonumber(values[1] or nil),
    reading = values[8] or '',
    moved = values[9],
    undrained = tonumber(values[2] or 0),
    keyEpoch = values[3] or '0',
    held = 0,
    live = 0,
    short = 0,
  }
  if current[organization] then
    account.held = tonumber(values[5] or 0)
    account.live = tonumber(values[6] or 0)
    account.short = tonumber(values[7] or 0)
  end
  for field, sum in pairs(owed[organization] or {}) do
    account[field] = account[field] + sum
  end
  known[organization] = account
  return account
end

-- Adds to a field of an organization or a scope whose books were read.
local function write_sum(organization, field, sum)
  local key = organization_key(organization)
  if field == 'undrained' then
    call('HINCRBY', key, field, sum)
    return
  end
  if not current[organization] then
    volatile('HSET', key, 'epoch', epoch, 'held', '0', 'live', '0', 'short', '0')
    current[organization] = true
    note_told(organization)
  end
  volatile('HINCRBY', key, field, sum)
end

-- Writes what `add` gathered for a field.
local function write_owed(organization, sums, field)
  if sums[field] and sums[field] ~= 0 then
    write_sum(organization, field, text(sums[field]))
    sums[field] = 0
  end
end

-- Changes undrained, held, short or live of an organization; `change` may be negative. words: the same as text, where it may be
-- beyond what a double holds exactly: a charge is what its request cost, however much that is.
local function add(organization, field, change, words)
  if change == 0 then
    return
  end
  local sums = owed[organization]
  if not sums then
    -- A key that is none of ours is found now, when this operation alone fails.
    books(organization)
    sums = {}
    owed[organization] = sums
  end
  local account = known[organization]
  if account then
    account[field] = account[field] + change
  end
  local sum = (sums[field] or 0) + change
  if sum > MOST_OWED or sum < -MOST_OWED then
    write_owed(organization, sums, field)
    write_sum(organization, field, words or text(change))
    sum = 0
  end
  sums[field] = sum
end

local function write_books()
  for organization, sums in pairs(owed) do
    for field in pairs(sums) do
      write_owed(organization, sums, field)
    end
  end
  owed = {}
end
