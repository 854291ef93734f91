-- Limits of keys and projects (rule 9.1). A call passes a request's scopes as one text, which its hold keeps: for each, with
-- spaces between, k (a key) or p (a project), its id, the window that its credit is limited in ("-": it is not), the amount, and
-- the limits of running requests, of requests and of tokens a minute (0: none); a semicolon between two scopes. The window is
-- d, w, m or t and the day that it begins at, as days since 1970.

local NO_SCOPES = {}
local parsed = { [''] = NO_SCOPES }
-- Most requests have no scopes: code on the way of each request counts through the list, as `ipairs` costs two calls even for an
-- empty one.
local function scopes_of(scopes)
  local list = parsed[scopes]
  if list then
    return list
  end
  list = {}
  for kind, id, window, amount, concurrent, requests, tokens in
    string.gmatch(scopes, '(%a) (%S+) (%S+) (%d+) (%d+) (%d+) (%d+)')
  do
    list[#list + 1] = {
      kind = kind,
      -- Name under which its running requests and its buckets are counted.
      name = '/' .. id,
      -- Name under which its credit is counted; nil: its credit is not limited.
      credit = window ~= '-' and '/' .. id .. '.' .. window or nil,
      amount = tonumber(amount),
      concurrent = tonumber(concurrent),
      requests = tonumber(requests),
      tokens = tonumber(tokens),
    }
  end
  local names = {}
  for n = 1, #list do
    names[#names + 1] = list[n].credit
  end
  -- Names of the scopes with a limit of credit, with a space between two.
  list.credit_names = table.concat(names, ' ')
  parsed[scopes] = list
  return list
end

-- Returns the word under which the base of an organization's scope must have been stored to count.
local function reading_of(organization)
  local account = books(organization)
  if not account then
    return ''
  end
  account.word = account.word or epoch .. ' ' .. account.reading
  return account.word
end

-- Makes the spend of an organization's scopes invalid: the next request that asks for it reads it from the ledger again.
local function read_again(organization)
  local key = organization_key(organization)
  if call('HINCRBY', key, 'reading', 1) == 1 then
    -- The organization may have been forgotten: the word must differ from all those that its scopes may still hold from before.
    call('HSET', key, 'reading', text(now))
    note_told(organization)
  end
  known[organization] = nil
end

-- Returns what is left of a scope's amount after what was spent, and its books; nil: its spend has to be read first.
local function room_of(organization, scope)
  local spend = books(scope.credit)
  if not spend.base or spend.reading ~= reading_of(organization) then
    return nil
  end
  return scope.amount + spend.base - spend.undrained, spend
end

-- Returns the credits of an organization and of the scopes of a request: for each what is left, what others hold of it, what they
-- lack of their estimates, and what is undrained: so much more may be left, as the ledger's base may hold it already. nil: the
-- spend of a scope has to be read first.
local function rooms(organization, account, scopes)
  local found = {
    {
      left = account.base - account.undrained,
      held = account.held,
      short = account.short,
      undrained = account.undrained,
    },
  }
  for _, scope in ipairs(scopes_of(scopes)) do
    if scope.credit then
      local left, spend = room_of(organization, scope)
      if not left then
        return nil
      end
      found[#found + 1] = { left = left, held = spend.held, short = spend.short, undrained = spend.undrained }
    end
  end
  return found
end

-- Returns what a new request may take of the credits of an organization and of its scopes, whose spend was read; and the first of
-- them that has nothing free: '' (the organization) or a scope's name.
local function least_free(account, scopes)
  local least = account.base - account.undrained - account.held - account.short
  if least <= 0 then
    return least, ''
  end
  local list = scopes_of(scopes)
  for n = 1, #list do
    local scope = list[n]
    if scope.credit then
      local spend = books(scope.credit)
      local free = scope.amount + spend.base - spend.undrained - spend.held - spend.short
      if free <= 0 then
        return free, scope.credit
      end
      least = math.min(least, free)
    end
  end
  return least
end

-- Adds to what is held of an organization and of the scopes; `live`: running requests.
local function add_hold(organization, scopes, amount, short, live)
  add(organization, 'held', amount)
  add(organization, 'short', short)
  add(organization, 'live', live)
  local list = scopes_of(scopes)
  for n = 1, #list do
    local scope = list[n]
    if scope.credit then
      add(scope.credit, 'held', amount)
      add(scope.credit, 'short', short)
    end
    if scope.concurrent > 0 then
      add(scope.name, 'live', live)
    end
  end
end

-- A scope or an organization is forgotten when nothing was noted of it (`note_told`) for this long, by the shard's clock, and
-- nothing runs in it. The ledger has what they had, and is read again when a request asks for them. An organization is known for
-- so long because a restored ledger is compared with what is known here (billing/holds/ledger-guard.ts).
local FORGOTTEN_SCOPE_MS, FORGOTTEN_ACCOUNT_MS = 8 * 86400000, 90 * 86400000

local function forget_if_idle(told, name)
  local key = organization_key(name)
  local undrained, counted_under, held, short, live = unpack(call('HMGET', key, 'undrained', 'epoch', 'held', 'short', 'live'))
  local runs = counted_under == epoch and not (held == '0' and short == '0' and live == '0')
  if (undrained or '0') ~= '0' or runs then
    note_told(name)
    return
  end
  call('DEL', key)
  call('ZREM', told, name)
  known[name], current[name] = nil, nil
end

-- Call it when all changes of the call are written.
local function forget_idle(most)
  for told, after_ms in pairs({ [SCOPES] = FORGOTTEN_SCOPE_MS, [ACCOUNTS] = FORGOTTEN_ACCOUNT_MS }) do
    for _, name in ipairs(call('ZRANGEBYSCORE', told, '-inf', text(now - after_ms), 'LIMIT', 0, most)) do
      -- One whose key is of the wrong type stays; the others must not wait for it.
      if not pcall(forget_if_idle, told, name) then
        note_told(name)
      end
    end
  end
end
