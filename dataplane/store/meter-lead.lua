-- lead(pod, beat)
-- One pod looks after a shard: drains it and sweeps it. It says each round that it lives, by a count and not by a time, as
-- clocks step: another takes its place that has seen the same count for a while, and names it ('' when it has seen none).
-- Nothing depends on there being only one, so it need not outlast the server. Replies: mine | other.
operations.lead = function(pod, beat)
  local leader, last = string.match(call('GET', LEADER) or '', '^(%S+) (%d+)$')
  if leader and leader ~= pod and last ~= beat then
    return { 'other' }
  end
  volatile('SET', LEADER, pod .. ' ' .. text((tonumber(last or 0) + 1) % MOST_OWED))
  return { 'mine' }
end

-- resign(pod)
-- Replies: resigned.
operations.resign = function(pod)
  if string.match(call('GET', LEADER) or '', '^(%S+) ') == pod then
    volatile('DEL', LEADER)
  end
  return { 'resigned' }
end
