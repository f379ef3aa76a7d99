-- create appends a node. It returns the node's sequence, the members before it, and the
-- time. Members of other sessions are shortened to names, except for the last member.
--   ARGV: session, queue, operation, prefix, data, '1' to watch the last node
if not current() then return ended end
local deadline = redis.call('ZSCORE', sessions, self)
if not deadline or tonumber(deadline) <= now then
  expire()
  return ended
end
local queue, op, prefix = ARGV[2], ARGV[3], ARGV[4]
local q = P .. 'q:' .. queue
local seq = string.format('%010.0f', now)
local last = redis.call('SET', KEYS[1], seq, 'GET')
if last and tonumber(last) >= now then
  if tonumber(last) >= 9007199254740991 then -- Lua's numbers are exact only below 2^53
    redis.call('SET', KEYS[1], last)
    return { err = 'ERR the sequences of this namespace are used up: use another namespace' }
  end
  seq = string.format('%010.0f', last + 1)
  redis.call('SET', KEYS[1], seq)
end
local s = P .. 's:' .. self
if redis.call('HSETNX', s, op, seq .. '/' .. queue) == 0 then
  if redis.call('HGET', s, op) == '-' then redis.call('HDEL', s, op) end -- no other create has this operation
  return { err = 'DLOCKCANCELLED the operation was cancelled' }
end
local before = redis.call('ZRANGE', q, 0, -1)
if #before > 0 and expire() then before = redis.call('ZRANGE', q, 0, -1) end
local name = prefix .. seq
redis.call('ZADD', q, seq, name .. '/' .. self .. '/' .. op .. '/' .. ARGV[5])
local w = P .. 'w:' .. queue
local watchers = redis.call('HGET', w, '')
if watchers then
  changed(queue, watchers)
  redis.call('HDEL', w, '')
end
if ARGV[6] == '1' and #before > 0 then
  watch(queue, string.match(before[#before], '^[^/]*'), self .. '/' .. name)
end
return { seq, brief(before, #before - 1), now }
