-- Runs the operations of one call in order: the group commit of one pod for one shard (design.md §5).
-- ARGV: the epoch that the caller knows, a fresh word for a new epoch, then for each operation its name, the
-- number of its arguments and the arguments. Replies {0, epoch} without doing anything when the epoch is another
-- one (this Redis lost what it knew: the caller charges and holds again first), else {1, replies}.
local epoch = redis.call('GET', tag .. ':epoch')
if not epoch then
  epoch = ARGV[2]
  redis.call('SET', tag .. ':epoch', epoch)
end
if epoch ~= ARGV[1] then
  return { 0, epoch }
end
local replies = {}
local at = 3
while at <= #ARGV do
  local count = tonumber(ARGV[at + 1])
  replies[#replies + 1] = operations[ARGV[at]](unpack(ARGV, at + 2, at + 1 + count))
  at = at + 2 + count
end
return { 1, replies }
