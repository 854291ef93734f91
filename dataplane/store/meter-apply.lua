-- Runs the operations of one call in order: the group commit of one pod for one shard (design.md §5).
-- ARGV: the epoch that the caller knows, a fresh word for a new epoch, and the operations: each its name and its
-- arguments with a unit separator (31) between them, and a record separator (30) between two operations. One packed
-- text costs the callers far less than thousands of arguments. Replies {0, epoch} without doing anything when the
-- epoch is another one (this Redis lost what it knew: the caller charges and holds again first), else {1, replies},
-- packed in the same way.
local function split(packed, separator)
  local parts, from = {}, 1
  local at = string.find(packed, separator, from, true)
  while at do
    parts[#parts + 1] = string.sub(packed, from, at - 1)
    from = at + 1
    at = string.find(packed, separator, from, true)
  end
  parts[#parts + 1] = string.sub(packed, from)
  return parts
end

local epoch = redis.call('GET', tag .. ':epoch')
if not epoch then
  epoch = ARGV[2]
  redis.call('SET', tag .. ':epoch', epoch)
end
if epoch ~= ARGV[1] then
  return { 0, epoch }
end
local replies = {}
for _, packed in ipairs(split(ARGV[3], '\30')) do
  local operation = split(packed, '\31')
  replies[#replies + 1] = table.concat(operations[operation[1]](unpack(operation, 2)), '\31')
end
return { 1, table.concat(replies, '\30') }
