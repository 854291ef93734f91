-- release(organization, id, requests limit, tokens limit, token difference, done, scopes, keyEpoch that they were read under)
-- Gives a hold back without a charge. With done = "1" the ledger has the charge already: the sweeper or a late settle must not
-- add another, and the spend of its scopes is read from the ledger again. If Redis has the charge as well, the tokens were
-- corrected with it. Replies: released.
operations.release = function(
  organization, id, requests_limit, tokens_limit, difference, done, scopes, key_epoch)
  local hold, charged = read_request(id)
  if hold then
    give_back(id, hold)
  end
  if done == '1' then
    local account = books(organization)
    if not account or key_epoch ~= account.keyEpoch then
      read_again(organization)
    else
      for _, scope in ipairs(scopes_of(scopes)) do
        if scope.credit then
          call('HDEL', organization_key(scope.credit), 'reading')
          known[scope.credit] = nil
        end
      end
    end
    if charged == 'final' then
      return { 'released' }
    end
    set_request(id, 'final')
    durable[id] = true
  elseif hold then
    set_request(id, false)
  end
  correct_all(organization, requests_limit, tokens_limit, difference, scopes)
  return { 'released' }
end
