-- Not an operation: joined after meter-shard.lua as a script of its own. ARGV: organizations and scopes of this shard.
-- Adds up, at one moment, the holds and the stream, to be compared with the organizations' books. A hold of another epoch
-- is in no sum, and waits for the sweep. Replies:
-- {{organization, base, version, undrained, held, live, sum of its entries, sum of its holds, its live holds,
-- short, what its holds lack}, ...},
-- then {milliseconds since the oldest heartbeat, its hold, milliseconds since the oldest entry, number of holds,
-- number of charges in the stream, heartbeats without a hold, number of charges in the stream by TAG:waiting}. What is held is
-- within the credit, so that doubles hold its sums exactly; a charge is what its request cost, however much that is.
local held, live, undrained, short = {}, {}, {}, {}
local holds = call('ZRANGE', BEATS, 0, -1, 'WITHSCORES')
local running, hollow = 0, 0
for at = 1, #holds, 2 do
  local hold = read_value(holds[at])
  if not hold or hold == 'final' or hold == 'provisional' then
    hollow = hollow + 1
  elseif is_current(hold) then
    running = running + 1
    local organization, amount, lacks, item, _, _, _, scopes = parts_of(hold)
    local function count(name, credit, runs)
      if credit then
        held[name] = (held[name] or 0) + tonumber(amount)
        short[name] = (short[name] or 0) + tonumber(lacks)
      end
      if runs and item ~= '1' then
        live[name] = (live[name] or 0) + 1
      end
    end
    count(organization, true, true)
    for _, scope in ipairs(scopes_of(scopes)) do
      if scope.credit then
        count(scope.credit, true, false)
      end
      count(scope.name, false, scope.concurrent > 0)
    end
  end
end
-- Adds amounts that are texts, in two parts: the digits before the last 11, and these.
local PART = 100000000000
local function add_text(sums, name, amount)
  local sum = sums[name] or { 0, 0 }
  sums[name] = sum
  sum[1] = sum[1] + (tonumber(string.sub(amount, 1, -12)) or 0)
  sum[2] = sum[2] + tonumber(string.sub(amount, -11))
end
local function sum_text(sum)
  local high, low = sum[1] + math.floor(sum[2] / PART), sum[2] % PART
  return high == 0 and text(low) or string.format('%.0f%011.0f', high, low)
end
local entries = call('XRANGE', USAGE, '-', '+')
local charged = 0
for _, entry in ipairs(entries) do
  for charge in string.gmatch(entry[2][2], '[^\30]+') do
    charged = charged + 1
    local organization, cost = string.match(charge, '^([^\31]*)\31(%d+)\31')
    -- An entry that the meter's scripts did not write is part of no balance.
    if cost then
      add_text(undrained, organization, cost)
      for name in string.gmatch(string.match(charge, '\31[^\31]*\31[^\31]*\31(.*)$') or '', '%S+') do
        add_text(undrained, name, cost)
      end
    end
  end
end
local told = {}
for _, organization in ipairs(ARGV) do
  local key = organization_key(organization)
  local values = call('HMGET', key, 'base', 'version', 'undrained')
  local sums = call('HMGET', key, 'epoch', 'held', 'live', 'short')
  if sums[1] ~= epoch then
    sums = {}
  end
  told[#told + 1] = {
    organization, values[1] or '', values[2] or '', values[3] or '0', sums[2] or '0', sums[3] or '0',
    sum_text(undrained[organization] or { 0, 0 }), text(held[organization] or 0), text(live[organization] or 0),
    sums[4] or '0', text(short[organization] or 0),
  }
end
local oldest_beat, oldest_hold = now, ''
if #holds > 0 then
  oldest_beat, oldest_hold = tonumber(holds[2]), holds[1]
end
-- Entries of the stream have times of the server's clock.
local oldest_entry = raw
if #entries > 0 then
  oldest_entry = tonumber(string.match(entries[1][1], '^%d+'))
end
told[#told + 1] = {
  text(now - oldest_beat), oldest_hold, text(raw - oldest_entry), text(running), text(charged), text(hollow),
  call('GET', WAITING) or '0',
}
return told
