-- The requests of a call: their holds, what says that their owners live, and the marks of their charges.

-- A hold is packed: epoch that it was made under, organization, amount, short (what it lacks of its estimate), item ("1"
-- for a batch item), swept ("1" after a provisional charge), row and cost (what the sweeper would charge), and its scopes.
local HOLD = 'sssssssss'
-- Pods charge again, after a loss, what they charged in the last 60 s.
local CHARGED_MS = 75000
-- With so few calls in the list their charges are left to the sweep, which forgets so many at once: some milliseconds.
local FEW_CALLS = 100
local FORGOTTEN_AT_ONCE = 5000

-- By id: a packed hold, "final", "provisional", or false.
local requests = {}
-- Ids of `requests` that are to be written; and whether an owner was heard of, or is not expected to be any more.
local changed, heard = {}, {}
-- Ids whose writes are durable: they were charged, or have observed usage, which is charged if the owner dies (but for
-- batch items, whose holds are released then).
local durable = {}
-- What is to be added to the stream; and the youngest entry that this call wrote, or that a charge which was made before
-- stands at or before.
local charges, newest = {}, ''
-- Organizations of charges that may belong to scopes which they do not name (`moved` in meter-shard.lua).
local moved = {}

local function request_key(id)
  return tag .. ':r:' .. id
end

-- As in `requests`.
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

-- A request's hold, still packed, or nil and how it was charged, or nil. A hold of another epoch is forgotten.
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

-- Organization, amount, short, item, swept, row, cost and scopes of a packed hold.
local function parts_of(hold)
  return select(2, struct.unpack(HOLD, hold))
end

-- Says as well that the request's owner lives.
local function set_hold(id, organization, amount, short, item, swept, row, cost, scopes)
  set_request(id, struct.pack(HOLD, epoch, organization, amount, short, item, swept, row, cost, scopes))
  heard[id] = true
  note_lasting(id, item, row)
end

local function make_hold(id, organization, amount, short, item, swept, row, cost, scopes)
  add_hold(organization, scopes, number(amount), number(short), item == '1' and 0 or 1)
  set_hold(id, organization, amount, short, item, swept, row, cost, scopes)
end

-- Gives the credit of a packed hold of this epoch back; what becomes of the request is the caller's.
local function give_back(id, hold)
  local organization, amount, short, item, _, row, _, scopes = parts_of(hold)
  add_hold(organization, scopes, -number(amount), -number(short), item == '1' and 0 or -1)
  heard[id] = false
  note_lasting(id, item, row)
end

-- A key that is none of ours is found by `books` and `add`, before anything is changed. kind: final or provisional.
-- key_epoch: that its scopes were read under. Under another one, or an unknown one (''), they may be others by now.
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
  -- Read anew where the account was taken over since this call added to it.
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

-- Final marks end by a list, which costs less than an expiry for each. Provisional ones do not: their requests may come
-- back, and the key would be a hold's by then.
local function forget_charged(most)
  local forgotten = 0
  while forgotten < most do
    local oldest = call('LINDEX', CHARGED, 0)
    local at = oldest and string.match(oldest, '^%d+')
    -- A restarted server forgets the shard's clock; what it kept may be of a later time.
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

-- With their sums, as a key further on that is none of ours must not leave charges in the stream that are in no books.
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

-- A charge was made before: its owner wants to know behind which entry it does not stand.
local function note_charged()
  local youngest = newest == '' and call('XREVRANGE', USAGE, '+', '-', 'COUNT', 1)[1]
  if youngest then
    newest = youngest[1]
  end
end

-- The commands that change a call's requests, words to be added.
local function commands()
  return { gone = { 'DEL' }, ended = { 'ZREM', BEATS }, values = { 'MSET' }, beats = { 'ZADD', BEATS } }
end

-- A call names at most some hundred requests: fewer than the 8,000 arguments that Lua's stack takes.
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
      -- Redis does not log a ZADD that changes nothing. So a durable heartbeat has a score of its own (.5): a volatile one
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
    -- More than come in, so that none stays.
    if calls > FEW_CALLS then
      forget_charged(2 * #final)
    end
  end
end

-- What a later operation reads with a command of its own, or the end of the call, needs what those before it changed.
-- Charges go first: when they are refused, nothing of the call has happened. Then what is deleted: a full memory
-- refuses what needs more of it until a script has freed some, and holds must be given back all the same.
local function write()
  write_charges()
  write_requests()
  write_books()
end

-- Operations by name; each file below adds its own.
local operations = {}
