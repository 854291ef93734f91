-- settle(organization, id, cost, row, requests limit, tokens limit, token difference, scopes, keyEpoch that they were read under)
-- Turns a hold into a charge; works without a hold. A provisional charge of the sweeper does not prevent it: the ledger
-- replaces that row by this one. Replies: settled | done (it was charged already).
operations.settle = function(
  organization, id, cost, row, requests_limit, tokens_limit, difference, scopes, key_epoch)
  local hold, charged = read_request(id)
  if charged == 'final' then
    note_charged()
    return { 'done' }
  end
  charge(organization, id, hold, cost, row, 'final', scopes, key_epoch)
  correct_all(organization, requests_limit, tokens_limit, difference, scopes)
  return { 'settled' }
end
