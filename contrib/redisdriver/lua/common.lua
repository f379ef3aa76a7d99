-- What most scripts need.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] -- microseconds since 1970
local sessions = P .. 'sessions'

local gen = P .. 'gen'

-- The grace and the number of replicas that each session asks for. The greatest apply to
-- all sessions, because a lease is only as safe as the weakest client lets it be.
local graces, replicas = P .. 'graces', P .. 'replicas'

local function most(key) return tonumber(redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2] or 0) end

local function exact(n) return string.format('%.0f', n) end

-- note stores the latest time or, if higher, the latest sequence. A later generation
-- compares it with its own server's clock to see whether that clock is behind.
local function note()
  redis.call('SET', P .. 'floor', exact(math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)))
end

-- find returns the queue's member for the node of that name, or nil. The second pass
-- searches the whole queue, because a node made by another program may have any score.
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

-- brief goes through the first n members, and shortens those of other sessions to their
-- names, because a queue may be long.
local function brief(members, n)
  for i = 1, n do
    if not string.find(members[i], '/' .. self .. '/', 1, true) then members[i] = string.match(members[i], '^[^/]*') end
  end
  return members
end

-- made returns the queue to which a create added its node and, if the node is still
-- there, the node's member and name. v is a value of s:SESSION. A queue's key that
-- another program has made with another type holds no node. It must not stop the session
-- from being ended.
local function made(session, v)
  local seq, queue = string.match(v or '', '^(%d+)/(.*)$')
  if not seq or redis.call('TYPE', P .. 'q:' .. queue).ok ~= 'zset' then return queue end
  local member, name = owned(queue, session, seq)
  return queue, member, name
end

local function send(session, why, name, queue, proof)
  redis.call('PUBLISH', P .. 'c:' .. session, why .. '/' .. name .. '/' .. (proof or '') .. '/' .. queue)
end

-- changed tells the watchers, which watch the whole queue, that it has changed.
local function changed(queue, watchers)
  for session in string.gmatch(watchers, '[^\n]+') do send(session, 'c', '', queue) end
end

-- gone tells all sessions that watch the queue, or its node of that name, that the node
-- has gone. why is 'r' if the holder has released it, and 'c' otherwise. A release counts
-- only with the node's operation as proof, because anybody might publish. If a session
-- watches a released node for a node of its own that has gone as well, the session learns
-- of its own node first.
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

-- waiting returns those lines of a node's watches (session/own node) whose own nodes are
-- still in the queue. It tells the other sessions that their own nodes have gone.
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

-- watch makes gone tell the session when the node of that name has gone or, if name is
-- empty, when the queue has changed. A waiter that gives up leaves its line behind.
-- Whenever the lines have grown by another 4096 bytes, watch removes such lines.
local function watch(queue, name, entry)
  local w = P .. 'w:' .. queue
  local old = redis.call('HGET', w, name) or ''
  if not string.find('\n' .. old, '\n' .. entry .. '\n', 1, true) then
    local new = old .. entry .. '\n'
    if name ~= '' and math.floor(#new / 4096) > math.floor(#old / 4096) then new = waiting(queue, new) end
    redis.call('HSET', w, name, new)
  end
end

-- drop removes a session and its nodes, and tells the sessions that watch these nodes.
-- The session goes last: if the server ends the script halfway, as it does while a
-- cluster moves the keys, the next call of drop removes the rest.
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

-- expire drops the sessions whose deadlines have passed, and reports whether there were
-- any. Each script that looks for other sessions' nodes calls it first. Its first command
-- changes nothing and needs no memory: a server whose memory is full ends a script if the
-- script's first change may need memory, as ZADD does.
local function expire()
  redis.call('ZREM', sessions, '')
  local passed = redis.call('ZRANGEBYSCORE', sessions, '-inf', now)
  for _, session in ipairs(passed) do drop(session) end
  return #passed > 0
end

local ended = { err = 'DLOCKENDED the store does not know the session' }

-- current reports whether the data belong to the generation that the server's replication
-- ID names. If not, their sessions have ended, and open has yet to begin the new
-- generation. A server gets a new ID when it starts or becomes a master, but also when
-- its first replica connects or when it has had none for an hour. In the last two cases
-- current adopts the new ID, unless the server has been a replica since it started,
-- because a replica's data may be old. delete calls current only if it must, because INFO
-- is slow compared with a short script.
local generation

-- unreplaced reports whether the server is the process that began the generation, and has
-- not been a replica since it started.
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
    if redis.call('EXISTS', gen) == 1 then ended = { err = 'DLOCKLOST' } end -- so open waits for a grace
    return false
  end
  expire() -- goes first, because HSET may need memory
  redis.call('HSET', gen, 'id', generation)
  return true
end

-- alive calls expire, and reports whether the store knows the session. For a session
-- without a name, which only observes, it changes nothing, so that a replica can run the
-- script.
local function alive()
  if self == '' then return true end
  if not current() then return nil end
  expire()
  return redis.call('ZSCORE', sessions, self)
end
