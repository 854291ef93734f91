-- advance(organization, id, spent, wanted, item, row, cost)
-- One loop iteration ended and the next one begins: the hold becomes `wanted` (spent + next estimate) when the
-- credit covers it, else `spent`. Both are totals, so a repeated call changes nothing. Replies:
--   held          the next iteration is covered
--   short         it is not; the hold is what was spent
--   load          the ledger's account has to be read first
operations.advance = function(organization, id, spent, wanted, item, row, cost)
  local account = books(organization)
  if not account then
    return { 'load' }
  end
  local hold = redis.call('HMGET', hold_key(id), 'amount', 'short')
  local current, short = hold[1], hold[2] or '0'
  if not current then
    -- Swept away while the owner was cut off: it is back.
    make_hold(organization, id, '0', item, row, cost)
    current = '0'
  end
  local others = account.held - tonumber(current) + account.short - tonumber(short)
  local covered = tonumber(wanted) <= account.base - account.undrained - others
  set_short(organization, id, short, '0')
  local amount = spent
  if covered then
    amount = wanted
  end
  redis.call('HSET', hold_key(id), 'amount', amount, 'row', row, 'cost', cost)
  redis.call('HINCRBY', organization_key(organization), 'held', text(tonumber(amount) - tonumber(current)))
  redis.call('ZADD', tag .. ':beats', now, id)
  if covered then
    return { 'held' }
  end
  return { 'short' }
end
