-- spend(organization, id, spent, wanted, item, row, cost, scopes)
-- A part of a request is done, and another begins: `spent` is charged if the owner dies now, and the hold covers it. The hold
-- grows to `wanted` (spent + what is to come) as far as the credit and the limits of its scopes go; what it then lacks comes
-- before new requests, as after `hold`. Amounts are totals, so a repeated call changes nothing. Replies:
--   noted, amount, left   what is held now, and the credit beyond what was spent and what others hold (and, if the hold
--                         does not cover `wanted`, beyond what others lack)
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
    -- Others first get what they lack of their estimates, before this hold grows; what was spent is held in any case.
    most = math.min(most, room.free, math.max(before, room.free - room.short))
  end
  local held = math.max(spent, math.min(math.max(before, wanted), most))
  local left = math.huge
  for _, room in ipairs(list) do
    -- Only one request at a time may lack something, as with new requests: else two could spend the same credit.
    left = math.min(left, room.free - spent - (wanted > held and room.short or 0))
  end
  short = math.max(0, tonumber(short) - math.max(0, held - before), wanted - held)
  amount = text(held)
  make_hold(id, organization, amount, text(short), item, swept, row, cost, scopes)
  return { 'noted', amount, text(left) }
end
