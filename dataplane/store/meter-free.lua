-- Limits of an organization on endpoints that cost nothing (rule 7.7): requests, with a bucket of a given size, and bytes of
-- counted text, whose bucket holds a minute's worth.

-- free(organization, group, requests a minute, size of their bucket, requests to take, bytes a minute, bytes that must
-- be there, bytes to take)
-- group: callers that share a budget. Replies: taken | limited, requests or text, ms to wait.
operations.free = function(organization, group, per_minute, size, requests, bytes_limit, bytes, bytes_taken)
  per_minute, size, requests = tonumber(per_minute), tonumber(size), tonumber(requests)
  bytes_limit, bytes = tonumber(bytes_limit), tonumber(bytes)
  local key = tag .. ':f:' .. group .. ':' .. organization
  local stored = call('HMGET', key, 'requests', 'bytes', 'at', 'perMinute', 'size', 'bytesLimit')
  if requests == 0 and stored[4] then
    -- If no request is to be taken, their bucket keeps the limit that it was stored with.
    per_minute, size = tonumber(stored[4]), tonumber(stored[5])
  end
  local requests_level, left, rate = filled(stored[1], stored[3], per_minute, stored[4], size, stored[5])
  local bytes_level, bytes_left, bytes_rate = filled(stored[2], stored[3], bytes_limit, stored[6])
  if requests > 0 and requests_level < requests then
    return { 'limited', 'requests', text(math.ceil(ms_until(requests, left, rate))) }
  end
  -- Bytes beyond the size of the bucket may be taken when it is full.
  local needed = math.min(bytes, bytes_limit)
  if needed > 0 and bytes_level < needed then
    return { 'limited', 'text', text(math.ceil(ms_until(needed, bytes_left, bytes_rate))) }
  end
  volatile('HSET', key, 'requests', requests_level - requests, 'bytes', bytes_level - tonumber(bytes_taken), 'at', now,
    'perMinute', per_minute, 'size', size, 'bytesLimit', bytes_limit)
  volatile('PEXPIRE', key, text(FORGOTTEN_MS))
  return { 'taken' }
end

-- pace(scopes)
-- Counts a request that costs nothing in the requests a minute of its key and project (rule 9.5). Their buckets of tokens stay as
-- they are, with the limit that they were stored with.
-- Replies: taken | limited, kind, ms to wait, limit.
operations.pace = function(scopes)
  local buckets = {}
  for _, scope in ipairs(scopes_of(scopes)) do
    if scope.requests > 0 then
      local _, _, _, _, tokens_now = stored_bucket(scope.name)
      local tokens_limit = tonumber(tokens_now or scope.tokens)
      local refused, wait, requests_level, tokens_level = read_buckets(scope.name, scope.requests, tokens_limit, 0)
      if refused == 'requests' then
        return { 'limited', scope.kind, text(math.ceil(wait)), text(scope.requests) }
      end
      buckets[#buckets + 1] = { scope.name, requests_level - 1, tokens_level, scope.requests, tokens_limit }
    end
  end
  for _, bucket in ipairs(buckets) do
    set_bucket(unpack(bucket))
  end
  return { 'taken' }
end
