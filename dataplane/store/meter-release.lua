-- release(organization, id, requests limit, tokens limit, token difference, done)
-- Gives a hold back without a charge. With done = "1" the ledger has the charge already, and the sweeper or a late
-- settle must not add another. Replies: released.
operations.release = function(organization, id, requests_limit, tokens_limit, difference, done)
  drop_hold(id)
  if done == '1' then
    redis.call('SET', done_key(id), 'final', 'PX', DONE_MS)
  end
  correct_tokens(organization, tonumber(requests_limit), tonumber(tokens_limit), tonumber(difference))
  return { 'released' }
end
