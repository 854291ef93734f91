-- Rate limits of an organization and of scopes: buckets that hold a minute's worth and fill evenly. A request takes 1 from one and
-- the estimated tokens of its input from the other. After the answer the tokens are corrected to those really used, so a
-- level may be below zero. Levels are not money: doubles will do.

-- Expiry of a bucket: it is full long before, as the server's clock, which expiry goes by, may step.
local FORGOTTEN_MS = 7 * 86400000

-- The level of a bucket without a limit: more than any limit.
local UNLIMITED = 1e15

-- Returns the bucket's level now. It holds a minute's worth, or `size`. limit_before, size_before: those of the stored level. A
-- raised limit adds the difference at once; a lowered one takes it, as far as it is there. Also returns the level if the whole
-- difference was taken, and how much it grows a minute: the bucket has something again once that level is above zero (`ms_until`).
local function filled(level, at, limit, limit_before, size, size_before)
  -- Without a limit it stays full: requests must not count against a limit that is set later.
  if limit <= 0 then
    return UNLIMITED, UNLIMITED, 0
  end
  size, limit_before = size or limit, tonumber(limit_before or 0)
  -- A restarted server forgets the shard's clock, so that stored times may be later than now.
  if not level or limit_before <= 0 or at - now > MOST_PASSED then
    return size, size, limit
  end
  size_before = tonumber(size_before or limit_before)
  -- A refusal writes nothing, so a stored level may have an old limit for long: it fills by the higher of the two.
  local rate = math.max(limit_before, limit)
  local before = math.min(size_before, tonumber(level) + math.max(0, now - at) * rate / 60000)
  local left = before + size - size_before
  return math.max(left, math.min(before, 0)), left, rate
end

-- Returns the milliseconds until there is that amount.
local function ms_until(amount, left, rate)
  return (amount - left) * 60000 / rate
end

-- By name: a bucket as stored, with the changes of this call: {level of requests, of tokens, the time of these levels, and their
-- limits}; and the names of the buckets that are to be written.
local buckets_known, buckets_changed = {}, {}

local function stored_bucket(name)
  local bucket = buckets_known[name]
  if not bucket then
    local stored = call('GET', tag .. ':l:' .. name)
    bucket = stored and { string.match(stored, '^(%S+) (%S+) (%S+) (%S+) (%S+)$') } or {}
    buckets_known[name] = bucket
  end
  return unpack(bucket, 1, 5)
end

-- Judges both limits; a limit of 0 is none. Returns the kind of the refusing limit or '', the milliseconds to wait, and the
-- levels of requests and of tokens.
local function read_buckets(organization, requests_limit, tokens_limit, tokens)
  local requests_stored, tokens_stored, at, requests_before, tokens_before = stored_bucket(organization)
  local requests_level, requests_left, requests_rate = filled(requests_stored, at, requests_limit, requests_before)
  local tokens_level, tokens_left, tokens_rate = filled(tokens_stored, at, tokens_limit, tokens_before)
  -- A request larger than the whole bucket may run when the bucket is full.
  local needed = math.min(tokens, tokens_limit)
  local refused, wait = '', 0
  if requests_limit > 0 and requests_level < 1 then
    refused, wait = 'requests', ms_until(1, requests_left, requests_rate)
  elseif tokens_limit > 0 and tokens_level < needed then
    refused, wait = 'tokens', ms_until(needed, tokens_left, tokens_rate)
  elseif tokens_limit > 0 and tokens_level <= 0 then
    refused, wait = 'tokens', ms_until(1, tokens_left, tokens_rate)
  end
  return refused, wait, requests_level, tokens_level
end

local function set_bucket(organization, requests_level, tokens_level, requests_limit, tokens_limit)
  buckets_known[organization] = { requests_level, tokens_level, now, requests_limit, tokens_limit }
  buckets_changed[organization] = true
end

local function write_buckets()
  if next(buckets_changed) then
    -- A write that a full memory refuses would fail the call, with all operations of others in it.
    insist()
  end
  for name in pairs(buckets_changed) do
    local level = string.format('%.14g %.14g %.0f %.0f %.0f', unpack(buckets_known[name]))
    volatile('SET', tag .. ':l:' .. name, level, 'PX', text(FORGOTTEN_MS))
  end
  buckets_changed = {}
end

-- Corrects the tokens after the answer: `difference` = tokens really used − tokens taken at admission. The limits are those at
-- admission; a bucket that has other limits by now keeps them.
local function correct_tokens(organization, requests_limit, tokens_limit, difference)
  if tokens_limit <= 0 or difference == 0 then
    return
  end
  local _, _, _, requests_now, tokens_now = stored_bucket(organization)
  requests_limit, tokens_limit = tonumber(requests_now or requests_limit), tonumber(tokens_now or tokens_limit)
  local _, _, requests_level, tokens_level = read_buckets(organization, requests_limit, tokens_limit, 0)
  if tokens_limit > 0 then
    tokens_level = math.min(tokens_limit, tokens_level - difference)
  end
  set_bucket(organization, requests_level, tokens_level, requests_limit, tokens_limit)
end

local function correct_all(organization, requests_limit, tokens_limit, difference, scopes)
  if difference == '0' then
    return
  end
  if tokens_limit ~= '0' then
    correct_tokens(organization, tonumber(requests_limit), tonumber(tokens_limit), tonumber(difference))
  end
  local list = scopes_of(scopes)
  for n = 1, #list do
    local scope = list[n]
    correct_tokens(scope.name, scope.requests, scope.tokens, tonumber(difference))
  end
end

local function ms_to_full(limit, level)
  if limit <= 0 then
    return '0'
  end
  return text(math.ceil((limit - level) * 60000 / limit))
end

-- Returns the buckets of an organization and of a request's scopes as they are now, and the first of their limits that refuses it.
local function read_all(organization, requests_limit, tokens_limit, tokens, list)
  local buckets, refusal = {}, nil
  local function look(name, kind, of_requests, of_tokens)
    if of_requests <= 0 and of_tokens <= 0 then
      return
    end
    local refused, wait, requests_level, tokens_level = read_buckets(name, of_requests, of_tokens, tokens)
    buckets[#buckets + 1] = {
      name = name,
      requests = { limit = of_requests, level = requests_level },
      tokens = { limit = of_tokens, level = tokens_level },
    }
    if refused ~= '' and not refusal then
      refusal = { kind, refused, text(math.ceil(wait)), text(refused == 'tokens' and of_tokens or of_requests) }
    end
  end
  look(organization, 'o', requests_limit, tokens_limit)
  for n = 1, #list do
    local scope = list[n]
    look(scope.name, scope.kind, scope.requests, scope.tokens)
  end
  return buckets, refusal
end

-- Returns for requests or for tokens the limit with least left, what is left, and the milliseconds until it is full.
local function tightest(buckets, what)
  local found
  for _, bucket in ipairs(buckets) do
    local one = bucket[what]
    if one.limit > 0 and (not found or one.level < found.level) then
      found = one
    end
  end
  if not found then
    return '0', '0', '0'
  end
  return text(found.limit), text(math.floor(math.max(found.level, 0))), ms_to_full(found.limit, found.level)
end

local function state_of(buckets)
  local limit, left, ms = tightest(buckets, 'requests')
  return limit, left, ms, tightest(buckets, 'tokens')
end

-- Returns the reply that refuses a request, or nil and its buckets (nil: it has none).
local function judge_buckets(organization, requests_limit, tokens_limit, tokens, list)
  if requests_limit <= 0 and tokens_limit <= 0 and #list == 0 then
    return nil
  end
  local buckets, refusal = read_all(organization, requests_limit, tokens_limit, tonumber(tokens), list)
  if refusal then
    local kind, refused, wait, limit = unpack(refusal)
    return { 'limited', kind, refused, wait, limit, state_of(buckets) }
  end
  return nil, #buckets > 0 and buckets or nil
end

-- Takes an admitted request from its buckets. Returns their state for the headers.
local function take_from(buckets, tokens)
  for _, bucket in ipairs(buckets) do
    bucket.requests.level = bucket.requests.level - 1
    bucket.tokens.level = bucket.tokens.level - tokens
    local requests, of_tokens = bucket.requests, bucket.tokens
    set_bucket(bucket.name, requests.level, of_tokens.level, requests.limit, of_tokens.limit)
  end
  return state_of(buckets)
end
