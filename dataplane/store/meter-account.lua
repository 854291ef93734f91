-- The ledger and the server that the bases of this shard are from, when `word` is another one; nil when it is the same.
-- What another server says of an account is not comparable: it may have lost its last transactions, and must be compared
-- with what is known here first (billing/ledger-guard.ts). '' is not compared.
local same_ledger
local function other_ledger(word)
  -- Asked once for a call, unless it changes.
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
-- Everything that is known here was compared with this server's ledger. Replies: adopted | other, the word that it is.
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

-- Takes an account as the ledger has it, when that is newer than what is known here.
local function take_account(organization, base, version, key_epoch)
  local key = organization_key(organization)
  local before = call('HMGET', key, 'version', 'keyEpoch')
  if not before[1] or tonumber(version) > tonumber(before[1]) then
    insist()
    call('HSET', key, 'base', base, 'version', version)
  end
  -- Null in a drain's books: the key epoch was not read there.
  if key_epoch ~= '' and (not before[2] or tonumber(key_epoch) > tonumber(before[2])) then
    call('HSET', key, 'keyEpoch', key_epoch)
  end
  -- Read anew by the next operation of the call.
  known[organization] = nil
end

-- account(organization, base, version, keyEpoch, only if known, word of the ledger)
-- Replies: taken | unknown (not asked for here yet, so left to be loaded when it is) | other (server: nothing is taken).
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
