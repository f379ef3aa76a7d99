-- cancel removes the node of a create. If that create has not come yet, it will make no
-- node.   ARGV: session, operation
if not alive() then return ended end
local s = P .. 's:' .. self
local seq, queue = string.match(redis.call('HGET', s, ARGV[2]) or '', '^(%d+)/(.*)$')
if not seq then
  redis.call('HSET', s, ARGV[2], '-')
  return 1
end
local member, name = owned(queue, self, seq)
if member then redis.call('ZREM', P .. 'q:' .. queue, member) end
redis.call('HDEL', s, ARGV[2]) -- a create comes once, so it needs no mark any more
if member then gone(queue, name, 'c') end
return 1
