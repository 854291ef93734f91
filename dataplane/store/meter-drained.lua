-- drained(number of accounts, (organization, base, version)..., (entry, organization, cost)...)
-- The ledger has these stream entries: takes the accounts that they are part of now, and subtracts from `undrained`
-- exactly what it deletes, so running it again changes nothing. Replies: drained, number of entries deleted.
operations.drained = function(accounts, ...)
  local values = { ... }
  local at = 1
  for _ = 1, tonumber(accounts) do
    take_account(values[at], values[at + 1], values[at + 2], '')
    at = at + 3
  end
  local deleted = 0
  while at <= #values do
    if redis.call('XDEL', tag .. ':usage', values[at]) == 1 then
      if values[at + 2] ~= '0' then
        redis.call('HINCRBY', organization_key(values[at + 1]), 'undrained', negative(values[at + 2]))
      end
      deleted = deleted + 1
    end
    at = at + 3
  end
  return { 'drained', text(deleted) }
end
