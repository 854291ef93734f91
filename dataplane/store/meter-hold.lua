-- Whether too many charges wait for the ledger, read once in a call, which has at most some hundred operations. The count
-- is not valid if the stream was deleted.
local behind
local function too_far_behind()
  if behind == nil then
    behind = tonumber(call('GET', WAITING) or 0) >= MAX_UNDRAINED and call('XLEN', USAGE) > 0
  end
  return behind
end

-- Whether charges wait for the ledger that may belong to scopes which they do not name. Once the entry in `moved` is gone from
-- the stream, the ledger has all of them; later entries do not matter.
local function is_moving(organization, account)
  if moved[organization] then
    return true
  end
  if not account.moved then
    return false
  end
  local oldest = call('XRANGE', USAGE, '-', '+', 'COUNT', 1)[1]
  if oldest and is_up_to(oldest[1], account.moved) then
    return true
  end
  call('HDEL', organization_key(organization), 'moved')
  account.moved = nil
  read_again(organization)
  return false
end

-- Judges whether an organization may begin a request, except for what its running ones hold. Returns the reply that refuses it
-- or nil, and its buckets if there are limits a minute.
local function judge(organization, key_epoch, concurrent, requests_limit, tokens_limit, tokens, scopes)
  local account = books(organization)
  if not account then
    return { 'load' }
  end
  if key_epoch ~= '' and key_epoch ~= account.keyEpoch then
    -- If the request's is newer, the account has to be read again; if it is older, the key.
    return { tonumber(key_epoch) > tonumber(account.keyEpoch) and 'load' or 'key' }
  end
  -- Between a drain's commit and its call here, charges may be in the ledger's account and still undrained here. So only the
  -- ledger's base can show that nothing is left; a request that asks again soon gets to know.
  if account.base <= 0 then
    return { 'empty' }
  end
  if account.base - account.undrained <= 0 then
    return { 'busy', '' }
  end
  if too_far_behind() then
    return { 'full' }
  end
  local list = scopes_of(scopes)
  for n = 1, #list do
    local scope = list[n]
    if scope.credit then
      -- The ledger has the charges in a moment, and then the scopes' spend is read from it.
      if is_moving(organization, account) then
        return { 'busy', scope.credit }
      end
      local left, spend = room_of(organization, scope)
      if not left then
        return { 'scopes' }
      end
      -- As for the organization: only the ledger's base shows that the limit is spent.
      if left <= 0 then
        return { left + spend.undrained <= 0 and 'spent' or 'busy', scope.credit, scope.kind }
      end
    end
  end
  if concurrent > 0 and account.live >= concurrent then
    return { 'concurrent', 'o', text(concurrent) }
  end
  for n = 1, #list do
    local scope = list[n]
    if scope.concurrent > 0 and books(scope.name).live >= scope.concurrent then
      return { 'concurrent', scope.kind, text(scope.concurrent) }
    end
  end
  return judge_buckets(organization, requests_limit, tokens_limit, tokens, list)
end

-- look(organization, keyEpoch, concurrent, requests limit, tokens limit, scopes)
-- Asks, without taking anything, whether the smallest request may begin. Replies: fine | load | scopes | key | empty | spent |
-- busy | full | concurrent | limited …, each as those of `hold`.
operations.look = function(organization, key_epoch, concurrent, requests_limit, tokens_limit, scopes)
  local refusal =
    judge(organization, key_epoch, number(concurrent), number(requests_limit), number(tokens_limit), 1, scopes)
  return refusal or { 'fine' }
end

-- standing(organization, scopes)
-- Shows what is left of limits. Replies: standing, or moving if charges wait for the ledger that may belong to scopes which they
-- do not name; and for each scope with a limit of credit what was spent (empty: it has to be read from the ledger) and
-- what is held.
operations.standing = function(organization, scopes)
  local account = books(organization)
  local reply = { account and is_moving(organization, account) and 'moving' or 'standing' }
  for _, scope in ipairs(scopes_of(scopes)) do
    if scope.credit then
      local left, spend = room_of(organization, scope)
      reply[#reply + 1] = left and text(scope.amount - left) or ''
      reply[#reply + 1] = text((spend or books(scope.credit)).held)
    end
  end
  return reply
end

-- hold(organization, id, estimate, keyEpoch, item, concurrent, requests limit, tokens limit, tokens, scopes)
-- Admits a request and sets min(estimate, available) aside (rule 1.8). Limits of 0 are none; an empty keyEpoch is
-- not compared. Replies:
--   held, amount, and if there are limits a minute, of the one with least left: for requests the limit (0: none), left, ms to
--                 full, and the same for tokens
--   done          the request was charged already
--   load          the ledger's account has to be read first
--   scopes        the spend of its scopes has to be read first
--   key           the key was read under an older epoch: look it up again
--   empty         grants − usage is not above 0 in the ledger
--   spent, scope, kind   the scope's limit of credit is spent
--   busy, scope   there is credit of the organization ('') or of a scope, but other requests hold all of it, or the ledger has
--                 yet to show whether there is
--   full          the ledger is too far behind
--   concurrent, kind, limit   too many requests of the organization (o) or of a scope run
--   limited, kind, requests or tokens, ms to wait, limit, and the limits a minute as after `held`
operations.hold = function(
  organization, id, estimate, key_epoch, item, concurrent, requests_limit, tokens_limit, tokens, scopes)
  local hold, charged = read_request(id)
  if hold then
    local _, amount = parts_of(hold)
    return { 'held', amount, '0', '0', '0', '0', '0', '0' }
  end
  if charged then
    return { 'done' }
  end
  concurrent, requests_limit, tokens_limit = number(concurrent), number(requests_limit), number(tokens_limit)
  local refusal, buckets =
    judge(organization, key_epoch, concurrent, requests_limit, tokens_limit, tokens, scopes)
  if refusal then
    return refusal
  end
  -- Running requests first get what they lack of their estimates: else credit that others give back would be promised twice,
  -- and together they could spend more than was there plus one request.
  local available, busy = least_free(books(organization), scopes)
  if busy then
    return { 'busy', busy }
  end
  local amount, short = estimate, '0'
  if tonumber(estimate) > available then
    amount, short = text(available), text(tonumber(estimate) - available)
  end
  make_hold(id, organization, amount, short, item, '', '', '0', scopes)
  if not buckets then
    return { 'held', amount }
  end
  return { 'held', amount, take_from(buckets, tonumber(tokens)) }
end

-- retake(organization, id, amount, item, row, cost, scopes)
-- Sets credit of a running request aside again after Redis lost its hold; never refused. Replies: held | done.
operations.retake = function(organization, id, amount, item, row, cost, scopes)
  local hold, charged = read_request(id)
  if hold then
    return { 'held' }
  end
  if charged == 'final' then
    return { 'done' }
  end
  insist()
  make_hold(id, organization, amount, '0', item, charged and '1' or '', row, cost, scopes)
  return { 'held' }
end
