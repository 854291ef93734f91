-- Returns the word of the ledger and server that the bases of this shard are from, if `word` is another one; nil if it is the
-- same. Accounts of another server are not comparable: it may have lost its last transactions, and must be compared
-- with what is known here first (billing/holds/ledger-guard.ts). '' is not compared.
local same_ledger
local function other_ledger(word)
  -- Read once in a call, unless the word changes.
  if word == '' or word == same_ledger then
    return nil
  end
  local of_shard = call('GET', LEDGER)
  if not of_shard then
    insist()
    call('SET', LEDGER, word)
    of_shard = word
  end
  if of_shard ~= word then
    return of_shard
  end
  same_ledger = word
  return nil
end

-- adopt(word before, word)
-- Takes another server's ledger, with which all that is known here was compared. Replies: adopted | other, the word of this shard.
operations.adopt = function(before, word)
  local of_shard = call('GET', LEDGER) or ''
  if of_shard ~= before and of_shard ~= word then
    return { 'other', of_shard }
  end
  insist()
  call('SET', LEDGER, word)
  same_ledger = word
  return { 'adopted' }
end

-- Whether an entry of the stream is another one, or older.
local function is_up_to(entry, other)
  local ms, sequence = string.match(entry, '^(%d+)-(%d+)$')
  local other_ms, other_sequence = string.match(other, '^(%d+)-(%d+)$')
  ms, other_ms = tonumber(ms), tonumber(other_ms)
  return ms < other_ms or (ms == other_ms and tonumber(sequence) <= tonumber(other_sequence))
end

-- Notes that keys or their limits have changed: charges up to now do not name the new scopes that they belong to.
local function note_moved(organization)
  write_charges()
  local youngest = call('XREVRANGE', USAGE, '+', '-', 'COUNT', 1)[1]
  if youngest then
    call('HSET', organization_key(organization), 'moved', youngest[1])
  end
  read_again(organization)
end

-- Takes an account as the ledger has it, if that is newer than what is known here. drained: the entry of the stream up to which
-- the ledger has all; nil: not known.
local function take_account(organization, base, version, key_epoch, drained)
  local key = organization_key(organization)
  local before = call('HMGET', key, 'version', 'keyEpoch', 'moved')
  if not before[1] or tonumber(version) > tonumber(before[1]) then
    insist()
    call('HSET', key, 'base', base, 'version', version)
    note_told(organization)
  end
  -- '' from a drain, which does not read the key epoch.
  if key_epoch ~= '' and (not before[2] or tonumber(key_epoch) > tonumber(before[2])) then
    call('HSET', key, 'keyEpoch', key_epoch)
    note_moved(organization)
  end
  if drained and before[3] and is_up_to(before[3], drained) then
    call('HDEL', key, 'moved')
    read_again(organization)
  end
  -- Read again by the next operation of the call.
  known[organization] = nil
end

-- Takes the spend of a scope as the ledger has it (base: a negative number) if it is newer than the one that is known here. If the
-- known one does not count, the new one must not be older than the organization's account, or it lacks charges of the account.
-- key_epoch: the one that the request knows the scope by; nil: no request asked, so a spend that does not count stays so.
local function take_scope(organization, name, base, version, key_epoch)
  known[organization] = nil
  local key, reading = organization_key(name), reading_of(organization)
  local before = call('HMGET', key, 'version', 'reading')
  if before[2] == reading then
    if tonumber(version) > tonumber(before[1]) then
      insist()
      call('HSET', key, 'base', base, 'version', version)
    end
  elseif key_epoch and tonumber(version) >= tonumber(call('HGET', organization_key(organization), 'version') or 0) then
    insist()
    call('HSET', key, 'base', base, 'version', version, 'reading', reading, 'keyEpoch', key_epoch)
  end
  note_told(name)
  -- Read anew by the next operation of the call.
  known[name] = nil
end

-- scope(organization, name, base, version, word of the ledger, key epoch that the scope is known by)
-- Replies: taken | other (server: nothing is taken).
operations.scope = function(organization, name, base, version, word, key_epoch)
  if other_ledger(word) then
    return { 'other' }
  end
  take_scope(organization, name, base, version, key_epoch)
  return { 'taken' }
end

-- reread(organization)
-- Has the spend of the scopes read again, because the ledger was changed without this Redis. Replies: done.
operations.reread = function(organization)
  read_again(organization)
  return { 'done' }
end

-- account(organization, base, version, keyEpoch, only if known, word of the ledger)
-- Replies: taken | unknown (no request has asked for it here yet: the first one loads it) | other (server: nothing is taken).
operations.account = function(organization, base, version, key_epoch, only_known, word)
  if other_ledger(word) then
    return { 'other' }
  end
  if only_known == '1' and call('HEXISTS', organization_key(organization), 'base') == 0 then
    return { 'unknown' }
  end
  take_account(organization, base, version, key_epoch)
  return { 'taken' }
end

-- balance(organization)
-- For showing an organization its credit. Replies: balance, undrained, held, version of its base | load.
operations.balance = function(organization)
  write()
  local values = call('HMGET', organization_key(organization), 'version', 'undrained', 'epoch', 'held')
  if not values[1] then
    return { 'load' }
  end
  return { 'balance', values[2] or '0', values[3] == epoch and values[4] or '0', values[1] }
end
