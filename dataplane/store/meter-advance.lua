-- advance(organization, id, spent, wanted, item, row, cost, scopes)
-- One loop iteration ended and the next one begins: the hold becomes `wanted` (spent + next estimate) when the
-- credit and each limit of its scopes cover it, else `spent`. Both are totals, so a repeated call changes nothing. Replies:
--   held          the next iteration is covered
--   short         it is not; the hold is what was spent
--   unsure        as short, but it is covered if the ledger has some of the undrained charges already: ask again soon
--   load          the ledger's account has to be read first
--   scopes        the spend of its scopes has to be read first
--   done          the request was charged already
operations.advance = function(organization, id, spent, wanted, item, row, cost, scopes)
  local account = books(organization)
  if not account then
    return { 'load' }
  end
  local hold, charged = read_request(id)
  if charged == 'final' then
    return { 'done' }
  end
  if not rooms(organization, account, scopes) then
    return { 'scopes' }
  end
  local swept = charged and '1' or ''
  if hold then
    swept = select(5, parts_of(hold))
    give_back(id, hold)
  end
  -- What other requests hold, and what they lack of their estimates, is not free.
  local covered, possible = true, true
  for _, room in ipairs(rooms(organization, account, scopes)) do
    local free = room.left - room.held - room.short
    covered = covered and tonumber(wanted) <= free
    possible = possible and tonumber(wanted) <= free + room.undrained
  end
  local amount = covered and wanted or spent
  -- Without a hold, the owner was cut off and its hold was swept: now it is back.
  make_hold(id, organization, amount, '0', item, swept, row, cost, scopes)
  return { covered and 'held' or possible and 'unsure' or 'short' }
end
