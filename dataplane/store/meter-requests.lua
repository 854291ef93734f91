-- The requests of a call: their holds, the heartbeats of their owners, and the marks of their charges.

-- Format of a packed hold: epoch that it was made under, organization, amount, short (what it lacks of its estimate), item ("1"
-- for a batch item), swept ("1" after a provisional charge), row and cost (what the sweeper would charge), and its scopes.
local HOLD = 'sssssssss'
-- How long the mark of a charge is kept: after a loss, pods charge again what they charged in the last 60 s.
local CHARGED_MS = 75000
-- With up to FEW_CALLS calls in the list, their marks are left to the sweep, which deletes FORGOTTEN_AT_ONCE in some milliseconds.
local FEW_CALLS = 100
local FORGOTTEN_AT_ONCE = 5000

-- By id: a packed hold, "final", "provisional", or false.
local requests = {}
-- Ids of `requests` that are to be written; and by id whether its owner was heard of (true), or has no more heartbeats (false).
local changed, heard = {}, {}
-- Ids whose writes are durable: they were charged, or have observed usage, which is charged if the owner dies (but for
-- batch items, whose holds are released then).
local durable = {}
-- Charges that are to be added to the stream; and the youngest entry that this call wrote, or one at or after an earlier charge of
-- a request that was settled again.
local charges, newest = {}, ''
-- Organizations of charges that may belong to scopes which they do not name (`moved` in meter-shard.lua).
local moved = {}

local function request_key(id)
  return tag .. ':r:' .. id
end

-- Returns the value of a request, as in `requests`.
local function read_value(id)
  local value = requests[id]
  if value == nil then
    value = call('GET', request_key(id))
    requests[id] = value
  end
  return value
end

-- Whether a packed hold is in its organization's sums.
local function is_current(hold)
  return struct.unpack('s', hold) == epoch
end

-- value: as in `requests`.
local function set_request(id, value)
  requests[id] = value
  changed[id] = true
end

-- Returns a request's packed hold; or nil and how it was charged; or nil. A hold of another epoch is forgotten.
local function read_request(id)
  local value = read_value(id)
  if value == 'final' or value == 'provisional' then
    return nil, value
  end
  if value and not is_current(value) then
    set_request(id, false)
    heard[id], durable[id] = false, true
    return nil
  end
  return value or nil
end

local function note_lasting(id, item, row)
  durable[id] = durable[id] or (row ~= '' and item ~= '1')
end

-- Returns organization, amount, short, item, swept, row, cost and scopes of a packed hold.
local function parts_of(hold)
  return select(2, struct.unpack(HOLD, hold))
end

-- Also notes that the request's owner lives.
local function set_hold(id, organization, amount, short, item, swept, row, cost, scopes)
  set_request(id, struct.pack(HOLD, epoch, organization, amount, short, item, swept, row, cost, scopes))
  heard[id] = true
  note_lasting(id, item, row)
end

local function make_hold(id, organization, amount, short, item, swept, row, cost, scopes)
  add_hold(organization, scopes, number(amount), number(short), item == '1' and 0 or 1)
  set_hold(id, organization, amount, short, item, swept, row, cost, scopes)
end

-- Gives back the credit of a packed hold of this epoch; the caller sets what becomes of the request.
local function give_back(id, hold)
  local organization, amount, short, item, _, row, _, scopes = parts_of(hold)
  add_hold(organization, scopes, -number(amount), -number(short), item == '1' and 0 or -1)
  heard[id] = false
  note_lasting(id, item, row)
end

-- Charges a request. `books` and `add` find a key of the wrong type before anything is changed. kind: final or provisional.
-- key_epoch: the one that its scopes were read under. If that is over, or unknown (''), the scopes may be others by now.
local function charge(organization, id, hold, cost, row, kind, scopes, key_epoch)
  local list = scopes_of(scopes)
  for n = 1, #list do
    local scope = list[n]
    if scope.credit then
      books(scope.credit)
    end
  end
  local change = number(cost)
  add(organization, 'undrained', change, cost)
  local packed = organization .. '\31' .. cost .. '\31' .. row
  if #list > 0 then
    for n = 1, #list do
      local scope = list[n]
      if scope.credit then
        add(scope.credit, 'undrained', change, cost)
      end
    end
    packed = packed .. '\31' .. list.credit_names
  end
  charges[#charges + 1] = packed
  -- Read again, in case the account was taken over since this call added to it.
  local account = books(organization)
  if not account or key_epoch ~= account.keyEpoch then
    moved[organization] = true
  end
  if hold then
    give_back(id, hold)
  end
  set_request(id, kind)
  durable[id] = true
end

-- Deletes old final marks. They end by a list, which costs less than an expiry for each. Provisional ones do not: their
-- requests may come back, and the key would then be a hold's.
local function forget_charged(most)
  local forgotten = 0
  while forgotten < most do
    local oldest = call('LINDEX', CHARGED, 0)
    local at = oldest and string.match(oldest, '^%d+')
    -- A restarted server forgets the shard's clock, so that stored times may be later than now.
    if not at or (now - at < CHARGED_MS and at - now <= MOST_PASSED) then
      return
    end
    call('LPOP', CHARGED)
    local keys = {}
    for id in string.gmatch(oldest, '\31([^\31]+)') do
      keys[#keys + 1] = request_key(id)
    end
    call('DEL', unpack(keys))
    forgotten = forgotten + #keys
  end
end

-- Writes the charges, together with their sums: a later failure at a key of the wrong type must not leave charges in the stream
-- that are in no books.
local function write_charges()
  if #charges == 0 then
    return
  end
  newest = call('XADD', USAGE, '*', 'r', table.concat(charges, '\30'))
  redis.pcall('INCRBY', WAITING, #charges)
  charges = {}
  for organization, sums in pairs(owed) do
    write_owed(organization, sums, 'undrained')
  end
  for organization in pairs(moved) do
    call('HSET', organization_key(organization), 'moved', newest)
    known[organization] = nil
  end
  moved = {}
end

-- Notes, for a request that was charged before, an entry of the stream at or after its charge, which its owner wants to know.
local function note_charged()
  local youngest = newest == '' and call('XREVRANGE', USAGE, '+', '-', 'COUNT', 1)[1]
  if youngest then
    newest = youngest[1]
  end
end

-- Returns the commands that change a call's requests, without their arguments.
local function commands()
  return { gone = { 'DEL' }, ended = { 'ZREM', BEATS }, values = { 'MSET' }, beats = { 'ZADD', BEATS } }
end

-- Runs a command that got arguments. A call names at most some hundred requests: fewer than the 8,000 arguments of Lua's stack.
local function write_command(volatiles, durables, name, words)
  if #volatiles[name] > words then
    volatile(unpack(volatiles[name]))
  end
  if #durables[name] > words then
    call(unpack(durables[name]))
  end
end

local function write_requests()
  local volatiles, durables, final, now_text = commands(), commands(), {}, text(now)
  for id in pairs(changed) do
    local key, value, of = request_key(id), requests[id], durable[id] and durables or volatiles
    if not value then
      of.gone[#of.gone + 1] = key
    elseif value == 'provisional' then
      call('SET', key, value, 'PX', text(CHARGED_MS))
    else
      of.values[#of.values + 1] = key
      of.values[#of.values + 1] = value
      if value == 'final' then
        final[#final + 1] = id
      end
    end
  end
  for id, lives in pairs(heard) do
    local of = durable[id] and durables or volatiles
    if lives then
      -- Redis does not log a ZADD that changes nothing. So a durable heartbeat has a score of its own (.5), as a volatile one
      -- may have set the plain score already.
      of.beats[#of.beats + 1] = durable[id] and now_text .. '.5' or now_text
      of.beats[#of.beats + 1] = id
    else
      of.ended[#of.ended + 1] = id
    end
  end
  changed, heard, durable = {}, {}, {}
  write_command(volatiles, durables, 'gone', 1)
  write_command(volatiles, durables, 'values', 1)
  write_command(volatiles, durables, 'beats', 2)
  write_command(volatiles, durables, 'ended', 2)
  if #final > 0 then
    local calls = call('RPUSH', CHARGED, now_text .. '\31' .. table.concat(final, '\31'))
    -- Forgets more than are added, so that none stays.
    if calls > FEW_CALLS then
      forget_charged(2 * #final)
    end
  end
end

-- Writes all changes of the operations so far: before an operation that reads with a command of its own, and at the end of the
-- call. Charges go first: when they are refused, nothing of the call has happened. Then come deletions: a server at its memory
-- limit refuses what needs more until a script has freed some, and holds must be given back all the same.
local function write()
  write_charges()
  write_requests()
  write_books()
end

-- Operations by name; each file below adds its own.
local operations = {}
