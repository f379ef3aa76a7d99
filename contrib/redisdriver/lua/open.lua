-- open begins a session. If the data are of an earlier generation, no session begins
-- before all leases of that generation are over. Each attempt reduces what is left of
-- this grace. The time of its end is not stored, because the clock of a machine that has
-- just started may still be corrected. open returns the microseconds until the next
-- attempt (0 if the session has begun), the generation, its grace, what is left of the
-- grace, the time, and how many replicas must confirm each attempt and heartbeat.
--   ARGV: session, timeout and grace in microseconds, '1' if a store without data is new,
--   when enough replicas had received an earlier attempt, the generation of that attempt,
--   how many replicas the session asks for, and the number of the database
local known = tonumber(redis.call('HGET', gen, 'grace') or 0) -- 0 if no grace is under way
local grace = math.max(tonumber(ARGV[3]), known, most(graces))
local confirm = math.max(tonumber(ARGV[7]), tonumber(redis.call('HGET', gen, 'replicas') or 0), most(replicas))
local layout = '1' -- changes whenever clients of an earlier version could misread a key
local found = redis.call('HGET', gen, 'layout') or redis.call('EXISTS', gen) == 0 and layout or '0'
if found ~= layout then return { err = 'DLOCKLAYOUT ' .. found .. ' ' .. layout } end
local begun = current()
if not generation then return ended end
local stored = redis.call('HGET', gen, 'db')
local db = ARGV[8] or stored or '0'
if stored ~= db then -- SWAPDB may have brought other data
  redis.call('HDEL', gen, 'id', 'run', 'next')
  begun = false
end
if not begun then
  local rest, at = grace, now
  if ARGV[4] == '1' and redis.call('EXISTS', gen, KEYS[1], sessions) == 0 then
    rest = 0
  elseif redis.call('HGET', gen, 'next') == generation then
    rest, at = unpack(redis.call('HMGET', gen, 'rest', 'at'))
    rest, at = rest + grace - known, tonumber(at)
    if ARGV[6] == generation or confirm == 0 then
      rest = rest - math.max(math.min(now - math.max(at, tonumber(ARGV[5])), grace / 4), 0)
      at = now
    end
  end
  redis.call('HSET', gen, 'db', db, 'layout', layout)
  for _, session in ipairs(redis.call('ZRANGE', sessions, 0, 99)) do drop(session) end
  if rest > 0 or redis.call('ZCARD', sessions) > 0 then
    redis.call('HDEL', gen, 'id', 'run') -- in case the data return to the server that these describe
    redis.call('HSET', gen, 'next', generation, 'rest', exact(rest), 'at', exact(at), 'grace', exact(grace), 'replicas', confirm)
    return { math.max(math.min(rest, grace / 5), 1), generation, grace, rest, now, confirm }
  end
  redis.call('HDEL', gen, 'next', 'rest', 'at', 'grace', 'replicas')
  redis.call('HSET', gen, 'id', generation, 'run', string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or '-')
  -- If the clock is behind, skip ten minutes: the data may lack the latest sequences.
  local floor = tonumber(redis.call('GET', P .. 'floor') or 0)
  if floor > now then redis.call('SET', KEYS[1], exact(floor + 600 * 1000000)) end
  note()
end
redis.call('ZADD', graces, ARGV[3], self) -- goes first: if memory is full, it fails before anything has changed
if ARGV[7] ~= '0' then redis.call('ZADD', replicas, ARGV[7], self) end
expire()
redis.call('ZADD', sessions, now + ARGV[2], self)
return { 0, generation, grace, 0, now, confirm }
