-- drained(first entry, last entry, number of entries, number of their charges, number of accounts,
--   (organization, base, version)..., (organization, sum of its costs)...)
-- The ledger has the stream's oldest entries: takes the accounts that they are part of now, deletes them, and
-- subtracts their sums from `undrained`. Replies:
--   drained       done
--   moved         they are not the oldest any more, or the last is not there: another pod was faster, or this Redis
--                 lost its end. Nothing is deleted: whoever reads what is there now goes on from that
--   broken        an entry from among them was missing, which none of ours takes out: they are deleted and the sums
--                 left in `undrained`, as too little may be available but never too much
operations.drained = function(first, last, count, charged, accounts, ...)
  -- The last value is where the next operation begins (meter-apply.lua).
  local values = { ... }
  local at = 1
  for _ = 1, tonumber(accounts) do
    take_account(values[at], values[at + 1], values[at + 2], '')
    at = at + 3
  end
  -- Entries go in at the end and out at the beginning: with both ends there, those in between are.
  local oldest = call('XRANGE', USAGE, '-', '+', 'COUNT', 1)[1]
  if not oldest or oldest[1] ~= first or #call('XRANGE', USAGE, last, last) == 0 then
    return { 'moved' }
  end
  local milliseconds, sequence = string.match(last, '^(%d+)-(%d+)$')
  local behind = milliseconds .. '-' .. text(tonumber(sequence) + 1)
  local deleted = call('XTRIM', USAGE, 'MINID', '=', behind)
  if call('XLEN', USAGE) == 0 then
    call('DEL', WAITING)
  else
    call('DECRBY', WAITING, charged)
  end
  if deleted ~= tonumber(count) then
    return { 'broken' }
  end
  while at < #values do
    add(values[at], 'undrained', negative(values[at + 1]))
    at = at + 2
  end
  return { 'drained' }
end
