local function end_hold(id)
  local value = read_value(id)
  if value and value ~= 'final' and value ~= 'provisional' then
    local readable, organization, _, _, item, swept, row, cost, scopes = pcall(parts_of, value)
    if not readable then
      -- None of ours. It is left alone, but must not stand before those behind it for ever.
      heard[id], durable[id] = false, true
      return
    end
    -- One of another epoch is in no sum, but what was observed of it is charged all the same.
    local hold = is_current(value) and value or nil
    if item ~= '1' and row ~= '' and swept ~= '1' then
      charge(organization, id, hold, cost, row, 'provisional', scopes, '')
    else
      if hold then
        give_back(id, hold)
      end
      set_request(id, false)
      -- Its owner may have charged it past this Redis before it died.
      if scopes ~= '' then
        read_again(organization)
      end
    end
  end
  heard[id], durable[id] = false, true
end

-- sweep(stale ms, most)
-- Ends holds whose owner has not been heard of for so long: charged provisionally from what it had seen, or given
-- back when it had seen nothing, or when it was a batch item, which will run again. Replies: swept, number.
operations.sweep = function(stale_ms, most)
  write()
  local ids = call('ZRANGEBYSCORE', BEATS, '-inf', text(now - tonumber(stale_ms)), 'LIMIT', 0, most)
  -- Heard of at a later time than now: the shard's clock was forgotten with a restart. Each dies as long after this as others.
  local later = call('ZRANGEBYSCORE', BEATS, text(now + 2 * MOST_PASSED), '+inf', 'LIMIT', 0, most)
  for _, id in ipairs(later) do
    call('ZADD', BEATS, text(now), id)
  end
  for _, id in ipairs(ids) do
    -- One whose organization's key is none of ours stays; the others must not wait for it.
    pcall(end_hold, id)
  end
  forget_charged(FORGOTTEN_AT_ONCE)
  write()
  forget_idle(most)
  return { 'swept', text(#ids) }
end
