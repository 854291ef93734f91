-- spend(organization, id, spent, wanted, item, row, cost, scopes)
-- A part of a request is done, and more shall begin: what was spent is charged if its owner dies now, and the hold
-- covers it. It becomes `wanted` (spent + what is to come) where that is more, as far as the credit and the limits of its scopes go; what it lacks
-- then comes before new requests, as after `hold`. Amounts are totals, so a repeated call changes nothing. Replies:
--   noted, amount, left   what is held now, and what credit there is beyond what was spent and what others hold (and,
--                         where it does not cover `wanted`, lack)
--   load                  the ledger's account has to be read first
--   scopes                the spend of its scopes has to be read first
--   done                  the request was charged already
operations.spend = function(organization, id, spent, wanted, item, row, cost, scopes)
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
  local amount, short, swept = '0', '0', charged and '1' or ''
  if hold then
    local _, seen, seen_cost
    _, amount, short, _, swept, seen, seen_cost = parts_of(hold)
    if row == '' then
      row, cost = seen, seen_cost
    end
    give_back(id, hold)
  end
  spent, wanted = tonumber(spent), tonumber(wanted)
  local before = tonumber(amount)
  local list = rooms(organization, account, scopes)
  local most = math.huge
  for _, room in ipairs(list) do
    room.free = room.left - room.held
    -- What others lack of their estimates comes before more for this one; what was spent is a fact.
    most = math.min(most, room.free, math.max(before, room.free - room.short))
  end
  local held = math.max(spent, math.min(math.max(before, wanted), most))
  local left = math.huge
  for _, room in ipairs(list) do
    -- One at a time may lack something, as with new requests: else two could spend what is there once.
    left = math.min(left, room.free - spent - (wanted > held and room.short or 0))
  end
  short = math.max(0, tonumber(short) - math.max(0, held - before), wanted - held)
  amount = text(held)
  make_hold(id, organization, amount, text(short), item, swept, row, cost, scopes)
  return { 'noted', amount, text(left) }
end
