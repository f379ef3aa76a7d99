-- The beginning of every script.
--   KEYS[1]  "{namespace}:seq"; all other keys begin with "{namespace}:", too
--   ARGV[1]  the session that makes the request
local P = string.sub(KEYS[1], 1, -4)
local self = ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] -- microseconds since 1970
local sessions = P .. 'sessions'

local gen = P .. 'gen'

-- The grace and the number of replicas that each session asks for. The greatest count for
-- all, because a lease is only as safe as the weakest client lets it be.
local graces, replicas = P .. 'graces', P .. 'replicas'

local function most(key) return tonumber(redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2] or 0) end

local function exact(n) return string.format('%.0f', n) end

-- note stores the latest time or sequence, by which a later generation knows that the
-- clock of its server is behind.
local function note()
  redis.call('SET', P .. 'floor', exact(math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)))
end

-- find returns the member of a queue for the node of that name, and its score. A node
-- whose score is not its sequence was made by another program. It is found by a search.
local function find(queue, name)
  local q = P .. 'q:' .. queue
  local prefix = name .. '/'
  local seq = string.match(name, '%-(%d+)$')
  for pass = 1, 2 do
    local members
    if pass == 1 then
      members = seq and redis.call('ZRANGEBYSCORE', q, seq, seq) or {}
    else
      members = redis.call('ZRANGE', q, 0, -1)
    end
    for _, m in ipairs(members) do
      if m == name or string.sub(m, 1, #prefix) == prefix then return m end
    end
  end
  return nil
end

-- brief shortens the first n members of other sessions to their names, because a queue may
-- be long.
local function brief(members, n)
  for i = 1, n do
    if not string.find(members[i], '/' .. self .. '/', 1, true) then members[i] = string.match(members[i], '^[^/]*') end
  end
  return members
end

-- owned returns the member of the session's node with that sequence, and its name and
-- operation.
local function owned(queue, session, seq)
  for _, m in ipairs(redis.call('ZRANGEBYSCORE', P .. 'q:' .. queue, seq, seq)) do
    local name, owner, op = string.match(m, '^([^/]*)/([^/]*)/([^/]*)/')
    if owner == session then return m, name, op end
  end
  return nil
end

-- made returns the queue of a create, and the member and the name of its node if it is in
-- the queue. v is a value of s:SESSION. A key of another type, which another program has
-- made, has no node, and must not keep a session from its end.
local function made(session, v)
  local seq, queue = string.match(v or '', '^(%d+)/(.*)$')
  if not seq or redis.call('TYPE', P .. 'q:' .. queue).ok ~= 'zset' then return queue end
  local member, name = owned(queue, session, seq)
  return queue, member, name
end

local function send(session, why, name, queue, proof)
  redis.call('PUBLISH', P .. 'c:' .. session, why .. '/' .. name .. '/' .. (proof or '') .. '/' .. queue)
end

-- changed tells the sessions that watch the whole queue of a change.
local function changed(queue, watchers)
  for session in string.gmatch(watchers, '[^\n]+') do send(session, 'c', '', queue) end
end

-- gone tells all sessions that watch the queue, or the node of that name, that this node
-- has gone. why is 'r' if its holder has released it, and 'c' otherwise. A release counts
-- only with its proof, the operation of the node, because anybody might publish. If a
-- session watches a released node for a node of its own, and its own node has gone as
-- well, then the session learns of its own node first.
local function gone(queue, name, why, proof)
  local w = P .. 'w:' .. queue
  if redis.call('EXISTS', w) == 0 then return end
  local found = redis.call('HMGET', w, '', name)
  if found[1] then changed(queue, found[1]) end
  if found[2] then
    local told = {}
    for session, own in string.gmatch(found[2], '([^/\n]*)/([^\n]*)\n') do
      if why == 'r' and not owned(queue, session, string.match(own, '%d+$') or '-1') then
        send(session, 'c', own, queue)
      end
      told[#told + 1] = session
    end
    local before = {}
    for _, session in ipairs(told) do
      if not before[session] then
        before[session] = true
        send(session, why, name, queue, proof)
      end
    end
  end
  if redis.call('EXISTS', P .. 'q:' .. queue) == 0 then
    redis.call('DEL', w)
  elseif found[1] or found[2] then
    redis.call('HDEL', w, '', name)
  end
end

-- waiting returns the lines of a node's watches whose own nodes are in the queue. It
-- tells the sessions of the other lines that their own nodes have gone.
local function waiting(queue, lines)
  local there = {}
  for _, m in ipairs(redis.call('ZRANGE', P .. 'q:' .. queue, 0, -1)) do
    there[string.match(m, '^[^/]*')] = true
  end
  return (string.gsub(lines, '([^/\n]*)/([^\n]*)\n', function(session, own)
    if there[own] then return nil end
    send(session, 'c', own, queue)
    return ''
  end))
end

-- watch makes gone tell the session when the node of that name has gone, or, if name is
-- empty, when the queue has changed. A waiter that gives up leaves its line. If the lines
-- have grown by another 4096 bytes, watch removes those of such waiters.
local function watch(queue, name, entry)
  local w = P .. 'w:' .. queue
  local old = redis.call('HGET', w, name) or ''
  if not string.find('\n' .. old, '\n' .. entry .. '\n', 1, true) then
    local new = old .. entry .. '\n'
    if name ~= '' and math.floor(#new / 4096) > math.floor(#old / 4096) then new = waiting(queue, new) end
    redis.call('HSET', w, name, new)
  end
end

-- drop removes a session and its nodes. It tells the sessions that watch them, and the
-- session itself. The session goes last: if the server ends the script in the middle, as
-- it does while a cluster moves the keys, then the next call of drop removes the rest.
local function drop(session)
  local s = P .. 's:' .. session
  for _, v in ipairs(redis.call('HVALS', s)) do
    local queue, member, name = made(session, v)
    if member then
      redis.call('ZREM', P .. 'q:' .. queue, member)
      gone(queue, name, 'c')
    end
  end
  redis.call('DEL', s)
  redis.call('ZREM', graces, session)
  redis.call('ZREM', replicas, session)
  redis.call('ZREM', sessions, session)
end

-- expire drops the sessions whose deadlines have passed. It reports whether there was
-- one. Each script that looks for nodes of other sessions calls it first. It begins
-- with a change that does nothing, because if its memory is full, the server ends a
-- script whose first change may need memory, as ZADD does.
local function expire()
  redis.call('ZREM', sessions, '')
  local passed = redis.call('ZRANGEBYSCORE', sessions, '-inf', now)
  for _, session in ipairs(passed) do drop(session) end
  return #passed > 0
end

local ended = { err = 'DLOCKENDED the store does not know the session' }

-- current reports whether the data are of the server's generation. If not, the sessions in
-- them have ended, and open has not begun the generation yet. A server takes a new ID when
-- it starts, and when it becomes a master, but also when its first replica comes, and when
-- it has had none for an hour. Its data are the same then if it has never been a replica
-- since it started. The data of a replica may be old. INFO takes longer than the rest of a
-- short script.
local generation

-- unreplaced reports whether the process that began the generation still has its data.
local function unreplaced(replication)
  local run = redis.call('HGET', gen, 'run')
  return run and string.find(replication, 'master_replid2:0+%s')
    and string.find(redis.call('INFO', 'stats'), 'total_net_repl_input_bytes:0%s')
    and string.find(redis.call('INFO', 'server'), 'run_id:' .. run, 1, true)
end

local function current()
  local replication = redis.call('INFO', 'replication')
  if not string.find(replication, 'role:master', 1, true) then
    ended = { err = 'READONLY the server is a replica' }
    return false
  end
  generation = string.match(replication, 'master_replid:(%x+)')
  if redis.call('HGET', gen, 'id') == generation then return true end
  if not unreplaced(replication) then
    if redis.call('EXISTS', gen) == 1 then ended = { err = 'DLOCKLOST' } end -- open begins with a grace
    return false
  end
  expire() -- begins with a change that needs no memory
  redis.call('HSET', gen, 'id', generation)
  return true
end

-- alive reports whether the store knows the session. It calls expire first. A session
-- without a name only observes: it changes nothing, so that a replica will do.
local function alive()
  if self == '' then return true end
  if not current() then return nil end
  expire()
  return redis.call('ZSCORE', sessions, self)
end
