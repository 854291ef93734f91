-- Whether too many charges wait for the ledger, asked once for a call: it holds at most some hundred operations. The
-- count says nothing when somebody took the stream away.
local behind
local function too_far_behind()
  if behind == nil then
    behind = tonumber(call('GET', WAITING) or 0) >= MAX_UNDRAINED and call('XLEN', USAGE) > 0
  end
  return behind
end

-- Whether an organization may begin a request, save for what its running ones hold. Returns the reply that refuses it
-- or nil, and with limits the levels of its buckets.
local function judge(organization, key_epoch, concurrent, requests_limit, tokens_limit, tokens)
  local account = books(organization)
  if not account then
    return { 'load' }
  end
  if key_epoch ~= '' and tonumber(key_epoch) ~= account.keyEpoch then
    -- Newer than what is known here, or older: either way one of the two has to be read again.
    return { tonumber(key_epoch) > account.keyEpoch and 'load' or 'key' }
  end
  if account.base - account.undrained <= 0 then
    return { 'empty' }
  end
  if too_far_behind() then
    return { 'full' }
  end
  if concurrent > 0 and account.live >= concurrent then
    return { 'concurrent' }
  end
  if requests_limit <= 0 and tokens_limit <= 0 then
    return nil, 0, 0
  end
  local refused, wait, requests_level, tokens_level = read_buckets(organization, requests_limit, tokens_limit, tokens)
  if refused ~= '' then
    return {
      'limited', refused, text(math.ceil(wait)),
      text(math.floor(math.max(requests_level, 0))), ms_to_full(requests_limit, requests_level),
      text(math.floor(math.max(tokens_level, 0))), ms_to_full(tokens_limit, tokens_level),
    }
  end
  return nil, requests_level, tokens_level
end

-- look(organization, keyEpoch, concurrent, requests limit, tokens limit)
-- Takes nothing, and asks for what the smallest request needs. Replies: fine | load | key | empty | full | concurrent | limited …, each as of `hold`.
operations.look = function(organization, key_epoch, concurrent, requests_limit, tokens_limit)
  local refusal = judge(organization, key_epoch, tonumber(concurrent), tonumber(requests_limit), tonumber(tokens_limit), 1)
  return refusal or { 'fine' }
end

-- hold(organization, id, estimate, keyEpoch, item, concurrent, requests limit, tokens limit, tokens)
-- Admits a request and sets min(estimate, available) aside (rule 1.8). Limits of 0 are none; an empty keyEpoch is
-- not compared. Replies:
--   held, amount, and where there are limits: requests left, ms to full, tokens left, ms to full
--   done          the request was charged already
--   load          the ledger's account has to be read first
--   key           the key was read under an older epoch: look it up again
--   empty         grants − usage is not above 0
--   busy          there is credit, but other requests hold all of it
--   full          the ledger is too far behind
--   concurrent    too many requests of the organization run
--   limited, kind, ms to wait, requests left, ms to full, tokens left, ms to full
operations.hold = function(organization, id, estimate, key_epoch, item, concurrent, requests_limit, tokens_limit, tokens)
  local hold, charged = read_request(id)
  if hold then
    local _, amount = parts_of(hold)
    return { 'held', amount, '0', '0', '0', '0' }
  end
  if charged then
    return { 'done' }
  end
  concurrent, requests_limit, tokens_limit = tonumber(concurrent), tonumber(requests_limit), tonumber(tokens_limit)
  local refusal, requests_level, tokens_level =
    judge(organization, key_epoch, concurrent, requests_limit, tokens_limit, tonumber(tokens))
  if refusal then
    return refusal
  end
  local account = books(organization)
  local balance = account.base - account.undrained
  -- What running requests lack of their estimates comes first: else credit that others give back would be promised
  -- twice, and together they could spend more than was there plus one request.
  local available = balance - account.held - account.short
  if available <= 0 then
    return { 'busy' }
  end
  local amount, short = estimate, '0'
  if tonumber(estimate) > available then
    amount, short = text(available), text(tonumber(estimate) - available)
  end
  make_hold(id, organization, amount, short, item, '', '', '0')
  if requests_limit <= 0 and tokens_limit <= 0 then
    return { 'held', amount }
  end
  requests_level = requests_level - 1
  tokens_level = tokens_level - tonumber(tokens)
  write_buckets(organization, requests_level, tokens_level)
  return {
    'held', amount,
    text(math.floor(math.max(requests_level, 0))), ms_to_full(requests_limit, requests_level),
    text(math.floor(math.max(tokens_level, 0))), ms_to_full(tokens_limit, tokens_level),
  }
end

-- retake(organization, id, amount, item, row, cost)
-- Sets credit of a running request aside again after Redis lost its hold; never refused. Replies: held | done.
operations.retake = function(organization, id, amount, item, row, cost)
  local hold, charged = read_request(id)
  if hold then
    return { 'held' }
  end
  if charged == 'final' then
    return { 'done' }
  end
  insist()
  make_hold(id, organization, amount, '0', item, charged and '1' or '', row, cost)
  return { 'held' }
end
