-- create appends a node. It returns the sequence and the members that were in the queue
-- before.   ARGV: session, queue, operation, prefix, data, '1' to watch the last node
if not alive() then return ended end
local queue, op, prefix = ARGV[2], ARGV[3], ARGV[4]
local q = P .. 'q:' .. queue
local seq = math.max((redis.call('GET', KEYS[1]) or 0) + 1, now)
if redis.call('HSETNX', P .. 's:' .. self, op, digits(seq) .. '/' .. queue) == 0 then
  return { err = 'DLOCKCANCELLED the operation was cancelled' }
end
redis.call('SET', KEYS[1], digits(seq))
local before = redis.call('ZRANGE', q, 0, -1)
local name = prefix .. string.format('%010.0f', seq)
redis.call('ZADD', q, digits(seq), name .. '/' .. self .. '/' .. op .. '/' .. ARGV[5])
local w = P .. 'w:' .. queue
local watchers = redis.call('HGET', w, '')
if watchers then
  changed(queue, watchers)
  redis.call('HDEL', w, '')
end
if ARGV[6] == '1' and #before > 0 then
  watch(queue, string.match(before[#before], '^[^/]*'), self .. '/' .. name)
end
return { digits(seq), before }
