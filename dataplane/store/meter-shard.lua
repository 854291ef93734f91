-- The part that all scripts of the meter share: the keys of one shard, the time, and the books of one organization.
-- The files meter-*.lua are joined into one script (dataplane/billing/holds/shard.ts), this one first.
--
-- All keys of a shard share one hash tag, so that a script touches one slot. KEYS[1] is the tag, `{gapura-meter-7-79}`:
--   TAG:ledger    the ledger and the run of its server that the bases of this shard are from
--   TAG:clock     the server's clock and the shard's at the last call that stored them; and the run of the server and the
--                 history of its data then (`run_id` and `master_replid` of its INFO)
--   TAG:epoch     the ledger's id and a random word; another word or none means that this Redis lost what it knew
--                 (design.md §5), another ledger that this Redis is not ours
--   TAG:o:ORG     hash of an organization: base, version (of the ledger's account that base was read at), keyEpoch,
--                 undrained (charged but not yet in base); and of its holds: held (their sum), short (what they lack of
--                 their estimates), live (running requests), epoch (the word that these three were counted under)
--                 reading (grows whenever the spend of its scopes must be read again), moved (entries of the stream up to
--                 this one may belong to scopes that they do not name: a limit was set, or a key moved, since)
--   TAG:s:NAME    as TAG:o:ORG, of a scope of limits (rule 9.1): a key or a project in a window. base is its spend there as the
--                 ledger has it, as a negative number; reading the word under which base counts; and keyEpoch that of the request
--                 which asked for it: charges of a later one may belong to it without naming it, as the limit may be gone.
--                 Of a key or project without a window only its running requests. NAME: meter-scopes.lua
--   TAG:scopes, TAG:accounts  sorted sets of the scopes and of the organizations, by the time at which they were last
--                 written or found in use
--   TAG:r:ID      string of a request: its hold while it runs (meter-requests.lua), then for a while "final" or
--                 "provisional", as it was charged, so that a repeat changes nothing
--   TAG:charged   list of final charges, oldest first: for each call its time, and the ids of the requests, with a unit
--                 separator (31) between them
--   TAG:beats     sorted set of hold ids by the time of their last heartbeat
--   TAG:l:NAME    rate-limit buckets of an organization or a scope: level of requests, of tokens, the time of these levels, and
--                 the limits of requests and of tokens that they were computed with
--   TAG:f:GROUP:ORG  hash of what the organization may still ask of free endpoints: requests, bytes (levels), at (their time), and
--                 the limits that they were computed with: perMinute and size, bytesLimit
--   TAG:usage     stream of charges on their way to the ledger, an entry for each call: r, its one field, has for each
--                 charge its organization, cost and row with a unit separator (31) between them, and a record separator
--                 (30) between two charges: to a reader, an entry or a field costs more than a byte
--   TAG:waiting   number of charges in TAG:usage; none when that is empty
--   TAG:leader    the pod that drains and sweeps this shard, and its last beat (meter-lead.lua)
--   TAG:drained   the youngest entry that was deleted from TAG:usage because the ledger has it: pods keep their charges until then
--
-- Charges are durable: they go to the append-only file, which is on the disk before the reply leaves. Holds without observed
-- usage, their sums, heartbeats, rate-limit buckets and the clock are not in that file: they cost no sync, and vanish when
-- Redis restarts. Replicas get all of it, but late. So a server that restarted, or became the master, may have wrong holds
-- and sums: the epoch is over then, and holds and sums of another epoch count for nothing (docs/decisions/redis-durability.md).
--
-- To this server, which serves all pods, a command costs more than its arguments: so a request has one key, and the changes
-- of a call's operations are written once, at the call's end.
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

-- epoch: false if there is none. Without its random word it is over.
local epoch, stored = unpack(call('MGET', tag .. ':epoch', CLOCK))

-- Milliseconds. The server's clock may step, and another server has another clock. The shard's own clock, `now`, continues from
-- its last value by the time since the call before, at most a second: a leader calls four times a second (meter-lead.lua).
-- So a step back refuses nobody, and a step forward fills no bucket and ends no hold.
local MOST_PASSED, CLOCK_WRITTEN = 1000, 200
local time = call('TIME')
local raw = time[1] * 1000 + math.floor(time[2] / 1000)
local raw_before, before, run_before, history_before = string.match(stored or '', '^(%d+) (%d+) (%S+) (%S+)$')
local now = raw
local passed = before and raw - raw_before
if before then
  -- After a step back it is unknown how much time has passed since the clock was stored: at most CLOCK_WRITTEN, so `now` was
  -- never later than this.
  now = before + (passed < 0 and CLOCK_WRITTEN or math.min(passed, MOST_PASSED))
end

-- The run and the data's history of this server; read only when the clock is to be stored, as that costs some microseconds.
-- Inside a script the server itself answers, whatever proxy is in front of it. '-': it does not tell.
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
  -- The epoch is over when another run or another server has the data, which may lack what was acknowledged. The same run may
  -- have copied its data from such a server and become the master again: then its history has a new id, and INFO names the
  -- earlier one. A master that was never a replica, and gets its first, has a new id as well, but INFO names no earlier one.
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

-- Stores the clock for later calls; not in every call, because a command costs more than some milliseconds of accuracy are worth.
local function keep_clock()
  if server_run then
    pcall(volatile, 'SET', CLOCK, string.format('%.0f %.0f %s %s', raw, now, server_run, history))
  end
end

-- Makes the next writes succeed on a server at its memory limit, which refuses commands that need memory until the script has
-- written something. Call it before writes that must succeed, because what frees memory comes after them.
local function insist()
  call('DEL', tag .. ':none')
end

local function text(number)
  return string.format('%.0f', number)
end

-- `tonumber` with a short way for 0, which most limits and corrections are: Lua reads the text of a number twice, which costs as
-- much as a dozen table accesses.
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

-- Notes that an organization or a scope was written or is in use: the time until it is forgotten begins anew (meter-scopes.lua).
local function note_told(name)
  call('ZADD', is_scope(name) and SCOPES or ACCOUNTS, text(now), name)
end

-- By organization: its books with the changes of this call, and the changes that are still to be written (a sum for each field).
local known, owed = {}, {}
-- By organization: whether the stored sums of its holds are of this epoch.
local current = {}
-- A sum up to this and one more amount make a sum that a double holds exactly; beyond it, changes are written one by one.
local MOST_OWED = 4500000000000000

-- Returns base, undrained, held, short, keyEpoch, live, reading and moved of an organization or scope; nil while the ledger's
-- account has not been read. Of a scope whose spend has not been read only the base is nil.
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

-- Writes the changes that `add` gathered for a field.
local function write_owed(organization, sums, field)
  if sums[field] and sums[field] ~= 0 then
    write_sum(organization, field, text(sums[field]))
    sums[field] = 0
  end
end

-- Changes undrained, held, short or live of an organization; `change` may be negative. words: the change as text, if it may be
-- beyond what a double holds exactly: a charge is what its request cost, however much that is.
local function add(organization, field, change, words)
  if change == 0 then
    return
  end
  local sums = owed[organization]
  if not sums then
    -- A key of the wrong type is found here, so that only this operation fails.
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
