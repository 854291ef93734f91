-- release(organization, id, requests limit, tokens limit, token difference, done)
-- Gives a hold back without a charge. With done = "1" the ledger has the charge already, and the sweeper or a late
-- settle must not add another. Replies: released.
operations.release = function(organization, id, requests_limit, tokens_limit, difference, done)
  local hold, charged = read_request(id)
  if hold then
    give_back(id, hold)
  end
  if done == '1' then
    if charged ~= 'final' then
      set_request(id, 'final')
      durable[id] = true
    end
  elseif hold then
    set_request(id, false)
  end
  correct_tokens(organization, tonumber(requests_limit), tonumber(tokens_limit), tonumber(difference))
  return { 'released' }
end
