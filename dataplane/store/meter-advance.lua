-- advance(organization, id, spent, wanted, item, row, cost)
-- One loop iteration ended and the next one begins: the hold becomes `wanted` (spent + next estimate) when the
-- credit covers it, else `spent`. Both are totals, so a repeated call changes nothing. Replies:
--   held          the next iteration is covered
--   short         it is not; the hold is what was spent
--   load          the ledger's account has to be read first
--   done          the request was charged already
operations.advance = function(organization, id, spent, wanted, item, row, cost)
  local account = books(organization)
  if not account then
    return { 'load' }
  end
  local hold, charged = read_request(id)
  if charged == 'final' then
    return { 'done' }
  end
  local swept = charged and '1' or ''
  if hold then
    swept = select(5, parts_of(hold))
    give_back(id, hold)
  end
  -- What other requests hold, and what they lack of their estimates.
  local covered = tonumber(wanted) <= account.base - account.undrained - account.held - account.short
  local amount = covered and wanted or spent
  -- There was none when the owner was cut off and its hold swept away: it is back.
  make_hold(id, organization, amount, '0', item, swept, row, cost)
  return { covered and 'held' or 'short' }
end
