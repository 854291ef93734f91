-- heartbeat(id, row, cost)
-- Notes that the owner lives; row and cost are what the sweeper charges if it dies ('' when nothing new was seen).
-- Replies: beaten | gone (there is no such hold: take it again) | done.
operations.heartbeat = function(id, row, cost)
  local hold, charged = read_request(id)
  if not hold then
    return { charged == 'final' and 'done' or 'gone' }
  end
  local organization, amount, short, item, swept, seen, _, scopes = parts_of(hold)
  if row == '' then
    heard[id] = true
    note_lasting(id, item, seen)
  else
    set_hold(id, organization, amount, short, item, swept, row, cost, scopes)
  end
  return { 'beaten' }
end
