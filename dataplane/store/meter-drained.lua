-- drained(word of the ledger, first entry, last entry, number of entries, number of their charges, number of accounts,
--   number of scopes, (organization, base, version)..., (organization, scope, base, version)...,
--   (organization or scope, sum of its costs)...)
-- The ledger has the stream's oldest entries: deletes them, takes the accounts that they are part of now, and
-- subtracts their sums from `undrained`. Replies:
--   drained       done
--   moved         they are not the oldest any more, or the last one is missing: another pod was faster, or this Redis lost
--                 the end of the stream. Nothing is deleted: the next drain begins with what is there now
--   other         another server of the ledger than the one that is known here took them: nothing is done
--   broken        an entry among them was missing, which the meter never deletes alone: they are deleted and the sums
--                 left in `undrained`, as too little may be available but never too much
-- An organization whose key is of the wrong type is passed over: the others' charges must not wait for it.
operations.drained = function(word, first, last, count, charged, accounts, scopes, ...)
  if other_ledger(word) then
    return { 'other' }
  end
  -- The last value is where the next operation begins (meter-apply.lua).
  local values = { ... }
  local told = 3 * tonumber(accounts) + 1
  local sums = told + 4 * tonumber(scopes)
  -- Entries are added at the end and deleted at the beginning: if the first and the last are there, so are those between.
  local oldest = call('XRANGE', USAGE, '-', '+', 'COUNT', 1)[1]
  local there = oldest and oldest[1] == first and #call('XRANGE', USAGE, last, last) > 0
  local deleted
  if there then
    -- The first write, because a server at its memory limit refuses what needs more until a script has freed some.
    local milliseconds, sequence = string.match(last, '^(%d+)-(%d+)$')
    deleted = call('XTRIM', USAGE, 'MINID', '=', milliseconds .. '-' .. text(tonumber(sequence) + 1))
    if call('XLEN', USAGE) == 0 then
      call('DEL', WAITING)
    else
      redis.pcall('DECRBY', WAITING, charged)
    end
    pcall(volatile, 'SET', DRAINED, last)
  end
  local passed_over = {}
  for at = 1, told - 1, 3 do
    passed_over[values[at]] = not pcall(take_account, values[at], values[at + 1], values[at + 2], '', last)
  end
  for at = told, sums - 1, 4 do
    passed_over[values[at + 1]] = not pcall(take_scope, unpack(values, at, at + 3))
  end
  if not there then
    return { 'moved' }
  end
  if deleted ~= tonumber(count) then
    return { 'broken' }
  end
  for at = sums, #values - 1, 2 do
    if not passed_over[values[at]] then
      pcall(add, values[at], 'undrained', -number(values[at + 1]), '-' .. values[at + 1])
    end
  end
  return { 'drained' }
end
