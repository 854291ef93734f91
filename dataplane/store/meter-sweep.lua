-- sweep(stale ms, most)
-- Ends holds whose owner has not been heard of for so long: charged provisionally from what it had seen, or given
-- back when it had seen nothing, or when it was a batch item, which will run again. Replies: swept, number.
operations.sweep = function(stale_ms, most)
  local ids = redis.call('ZRANGEBYSCORE', tag .. ':beats', '-inf', text(now - tonumber(stale_ms)), 'LIMIT', 0, most)
  for _, id in ipairs(ids) do
    local hold = redis.call('HMGET', hold_key(id), 'org', 'item', 'row', 'cost')
    drop_hold(id)
    local seen = hold[1] and hold[2] ~= '1' and hold[3] ~= ''
    if seen and redis.call('EXISTS', done_key(id)) == 0 then
      charge(hold[1], id, hold[4], hold[3], 'provisional')
    end
  end
  return { 'swept', text(#ids) }
end
