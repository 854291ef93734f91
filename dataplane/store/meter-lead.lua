-- lead(pod, beat)
-- One pod, the leader, drains and sweeps a shard. Each round it shows that it lives by a count, and not by a time, as clocks
-- step. Another pod that has seen the same count for a while takes its place by passing that count as `beat` ('' while it has
-- seen none). Nothing depends on there being only one leader, so the key need not outlast the server. Replies: mine | other.
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
