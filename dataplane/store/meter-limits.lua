-- Rate limits of an organization: buckets that hold a minute's worth and fill evenly. Requests cost 1, tokens what
-- is estimated for the input; after the answer the tokens are corrected by what was really used, so a bucket may
-- stand below zero. These are no amounts of money: doubles will do.

-- A bucket is full long before it is forgotten, and the server's clock, which expiry goes by, may step.
local FORGOTTEN_MS = 7 * 86400000

-- The bucket's level now.
local function filled(level, limit, at)
  -- A restarted server forgets the shard's clock; what it kept may be of a later time.
  if not level or at - now > MOST_PASSED then
    return limit
  end
  return math.min(limit, tonumber(level) + math.max(0, now - at) * limit / 60000)
end

-- Both limits at once; a limit of 0 is none. Returns whether it is admitted, and what the headers tell:
-- {kind of the refusing limit or '', milliseconds to wait, requests left, ms to full, tokens left, ms to full}
local function read_buckets(organization, requests_limit, tokens_limit, tokens)
  local stored = call('HMGET', tag .. ':b:' .. organization, 'requests', 'tokens', 'at')
  local requests_level = filled(stored[1], requests_limit, stored[3])
  local tokens_level = filled(stored[2], tokens_limit, stored[3])
  -- A request larger than the whole bucket may run when the bucket is full.
  local needed = math.min(tokens, tokens_limit)
  local refused, wait = '', 0
  if requests_limit > 0 and requests_level < 1 then
    refused, wait = 'requests', (1 - requests_level) * 60000 / requests_limit
  elseif tokens_limit > 0 and tokens_level < needed then
    refused, wait = 'tokens', (needed - tokens_level) * 60000 / tokens_limit
  elseif tokens_limit > 0 and tokens_level <= 0 then
    refused, wait = 'tokens', (1 - tokens_level) * 60000 / tokens_limit
  end
  return refused, wait, requests_level, tokens_level
end

local function write_buckets(organization, requests_level, tokens_level)
  local key = tag .. ':b:' .. organization
  volatile('HSET', key, 'requests', requests_level, 'tokens', tokens_level, 'at', now)
  volatile('PEXPIRE', key, text(FORGOTTEN_MS))
end

-- After the answer: `difference` = tokens really used − tokens taken at admission.
local function correct_tokens(organization, requests_limit, tokens_limit, difference)
  if tokens_limit <= 0 or difference == 0 then
    return
  end
  local stored = call('HMGET', tag .. ':b:' .. organization, 'requests', 'tokens', 'at')
  local requests_level = filled(stored[1], requests_limit, stored[3])
  local tokens_level = math.min(tokens_limit, filled(stored[2], tokens_limit, stored[3]) - difference)
  write_buckets(organization, requests_level, tokens_level)
end

local function ms_to_full(limit, level)
  if limit <= 0 then
    return '0'
  end
  return text(math.ceil((limit - level) * 60000 / limit))
end
