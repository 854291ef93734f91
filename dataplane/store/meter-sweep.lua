local function end_hold(id)
  local value = read_value(id)
  if value and value ~= 'final' and value ~= 'provisional' then
    local readable, organization, _, _, item, swept, row, cost, scopes = pcall(parts_of, value)
    if not readable then
      -- Not a hold of the meter. The key is left alone, but its heartbeat ends, so that the sweep gets to those after it.
      heard[id], durable[id] = false, true
      return
    end
    -- A hold of another epoch is in no sum, but its observed usage is charged all the same.
    local hold = is_current(value) and value or nil
    if item ~= '1' and row ~= '' and swept ~= '1' then
      charge(organization, id, hold, cost, row, 'provisional', scopes, '')
    else
      if hold then
        give_back(id, hold)
      end
      set_request(id, false)
      -- Before it died, the owner may have charged the request without this Redis.
      if scopes ~= '' then
        read_again(organization)
      end
    end
  end
  heard[id], durable[id] = false, true
end

-- sweep(stale ms, most)
-- Ends holds whose owner has not been heard of for that long. They are charged provisionally from observed usage, or given back
-- when there is none, or when the request is a batch item, which runs again. Replies: swept, number.
operations.sweep = function(stale_ms, most)
  write()
  local ids = call('ZRANGEBYSCORE', BEATS, '-inf', text(now - tonumber(stale_ms)), 'LIMIT', 0, most)
  -- Heartbeats later than now: a restart made the shard forget its clock. They count as of now, and get as long as all others.
  local later = call('ZRANGEBYSCORE', BEATS, text(now + 2 * MOST_PASSED), '+inf', 'LIMIT', 0, most)
  for _, id in ipairs(later) do
    call('ZADD', BEATS, text(now), id)
  end
  for _, id in ipairs(ids) do
    -- One whose organization's key is of the wrong type stays; the others must not wait for it.
    pcall(end_hold, id)
  end
  forget_charged(FORGOTTEN_AT_ONCE)
  write()
  forget_idle(most)
  return { 'swept', text(#ids) }
end
