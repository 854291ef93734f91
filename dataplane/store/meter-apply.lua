-- Runs the operations of one call in order: the group commit of one pod for one shard (design.md §5).
-- ARGV: the epoch that the caller knows, a fresh word for a new epoch, and the operations: each its name, the number
-- of its arguments, and these, a zero byte after each. One packed text costs the callers far less than thousands of
-- arguments, and `struct` takes it apart without a search. Replies {0, epoch} without doing anything when the epoch
-- is another one (this Redis lost what it knew: the caller charges and holds again first), else {1, replies, entry of the
-- stream at or before which all charges of the call are, or ''}, with a unit separator (31) between the words of a reply
-- and a record separator (30) between two replies. An operation that fails replies `error` and why: a fault of one
-- organization's keys must not concern the others of the call.
--
-- An epoch is the id of its ledger, a point, and a random word. An epoch of another ledger is not replaced: replies {2, id of that
-- ledger}. Without the random word the epoch is over (meter-shard.lua): nothing of it counts, but the ledger is still the same.
if epoch ~= ARGV[1] then
  local owner = epoch and string.match(epoch, '^([^.]+)%.')
  if owner and owner ~= string.match(ARGV[2], '^[^.]*') then
    return { 2, owner }
  end
  if not owner or epoch == owner .. '.' then
    epoch = ARGV[2]
    insist()
    call('SET', tag .. ':epoch', epoch)
    keep_clock()
  end
  return { 0, epoch }
end

-- Formats for `struct.unpack`, by the number of arguments as text.
local formats = {}
local function format(count)
  local made = formats[count]
  if not made then
    made = string.rep('s', tonumber(count))
    formats[count] = made
  end
  return made
end

-- Runs an operation with what `struct.unpack` returned. The last value is where the next operation begins; operations ignore it.
local function run(operation, ...)
  local after = select(select('#', ...), ...)
  local fine, reply = pcall(operation, ...)
  if not fine then
    -- A server before 7.0 throws a text.
    local why = type(reply) == 'table' and reply.err or tostring(reply)
    reply = { 'error', (string.gsub(why, '%c', ' ')) }
  end
  return after, table.concat(reply, '\31')
end

keep_clock()
local packed, at, replies = ARGV[3], 1, {}
while at <= #packed do
  local name, count, first = struct.unpack('ss', packed, at)
  at, replies[#replies + 1] = run(operations[name], struct.unpack(format(count), packed, first))
end
write()
write_buckets()
return { 1, table.concat(replies, '\30'), newest }
