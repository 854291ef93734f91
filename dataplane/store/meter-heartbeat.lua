-- heartbeat(id, row, cost)
-- The owner lives; row and cost are what the sweeper shall charge if it dies ('' when nothing new was seen).
-- Replies: beaten | gone (there is no such hold: take it again) | done.
operations.heartbeat = function(id, row, cost)
  if redis.call('EXISTS', hold_key(id)) == 0 then
    if redis.call('GET', done_key(id)) == 'final' then
      return { 'done' }
    end
    return { 'gone' }
  end
  redis.call('ZADD', tag .. ':beats', now, id)
  if row ~= '' then
    redis.call('HSET', hold_key(id), 'row', row, 'cost', cost)
  end
  return { 'beaten' }
end
